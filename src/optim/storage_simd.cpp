// Ranges of weights, from and to fp32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/storage_simd.cpp"
#include "base/check.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "optim/forms-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {

template <WeightForm F>
void read_range(const ParamStorage& storage, size_t begin, float* HWY_RESTRICT out, size_t count) {
  const Lanes32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    hn::StoreU(load_weights<F>(d, storage, begin + i), d, out + i);
  }
  if (i == count) return;
  const auto rest = load_n_weights<F>(d, storage, begin + i, count - i);
  sv::store_n_from_f32<Format::kF32>(d, rest, out, i, count - i);
}

template <WeightForm F>
void write_range(const ParamStorage& storage, size_t begin, const float* HWY_RESTRICT values,
                 size_t count) {
  const Lanes32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    store_weights<F>(d, hn::LoadU(d, values + i), storage, begin + i);
  }
  if (i == count) return;
  const auto rest = sv::load_n_as_f32<Format::kF32>(d, values, i, count - i);
  store_n_weights<F>(d, rest, storage, begin + i, count - i);
}

void read_as_f32(const ParamStorage& storage, size_t begin, float* out, size_t count) {
  by_form(storage.weight_form,
          [&](auto form) HWY_ATTR { read_range<form.value>(storage, begin, out, count); });
}

void write_from_f32(const ParamStorage& storage, size_t begin, const float* values, size_t count) {
  by_form(storage.weight_form,
          [&](auto form) HWY_ATTR { write_range<form.value>(storage, begin, values, count); });
}

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::optim {

HWY_EXPORT(read_as_f32);
HWY_EXPORT(write_from_f32);

void read_weights(const ParamStorage& storage, size_t begin, std::span<float> out) noexcept {
  TRI_CHECK(begin + out.size() <= storage.count, "[{}, +{}) of {}", begin, out.size(),
            storage.count);
  HWY_DYNAMIC_DISPATCH(read_as_f32)(storage, begin, out.data(), out.size());
}

void write_weights(const ParamStorage& storage, size_t begin,
                   std::span<const float> values) noexcept {
  TRI_CHECK(begin + values.size() <= storage.count, "[{}, +{}) of {}", begin, values.size(),
            storage.count);
  HWY_DYNAMIC_DISPATCH(write_from_f32)(storage, begin, values.data(), values.size());
}

}  // namespace tri::optim
#endif  // HWY_ONCE
