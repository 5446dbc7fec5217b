// Room: optim. Weights and moments of every storage form as fp32, compiled per SIMD target: by
// vector, and by run. A run that is stored as fp32 is opened in place; any other is decoded to a
// scratch of kRun floats and closed into its form. forms_ref.h is the same in scalars.
#include <type_traits>

#include "hwy/highway.h"
#include "optim/kernel.h"
#include "simd/convert-inl.h"
#include "simd/random-inl.h"
#include "simd/split-inl.h"
#include "simd/state8-inl.h"

// Per-target include guard.
#if defined(TRI_OPTIM_FORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_OPTIM_FORMS_INL_H_
#undef TRI_OPTIM_FORMS_INL_H_
#else
#define TRI_OPTIM_FORMS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
namespace sv = tri::simd::HWY_NAMESPACE;
using numeric::Format;
using numeric::NoiseKey;
using numeric::SplitScheme;

using Lanes32 = hn::CappedTag<float, 16>;
static_assert(kBlock == numeric::kStateGroup);

// Elements of a run: as many blocks as are opened, stepped and closed together, stage by stage. The
// way of a block's largest value through the lanes to its scale and back is long; those of several
// blocks overlap.
inline constexpr size_t kRun = 8 * kBlock;

template <WeightForm F>
inline constexpr bool kIsSplit =
    F == WeightForm::kBf16x16 || F == WeightForm::kBf16x8 || F == WeightForm::kF16x8;

template <WeightForm F>
inline constexpr SplitScheme kScheme = F == WeightForm::kBf16x16  ? SplitScheme::kBf16Plus16
                                       : F == WeightForm::kBf16x8 ? SplitScheme::kBf16Plus8
                                                                  : SplitScheme::kF16Plus8;

// The format of the main part of a form that is not split.
template <WeightForm F>
inline constexpr Format kMain = F == WeightForm::kBf16Stochastic ? Format::kBf16 : Format::kF32;

HWY_INLINE uint16_t* high_part(const ParamStorage& storage) {
  return reinterpret_cast<uint16_t*>(storage.main);
}

template <WeightForm F>
HWY_INLINE auto* low_part(const ParamStorage& storage) {
  return reinterpret_cast<sv::Extra<kScheme<F>>*>(storage.remainder);
}

// Calls visit with the form as a constant. A branch per run, always predicted: the loop compiled
// for each of the 18 pairs of forms was six times the code and no faster on the narrow ones, as the
// vectors of a run overlap better stage by stage than in one long chain each.
template <class Visit>
HWY_INLINE auto by_form(WeightForm form, const Visit& visit) {
  switch (form) {
    case WeightForm::kF32:
      break;
    case WeightForm::kF32AndBf16:
      return visit(std::integral_constant<WeightForm, WeightForm::kF32AndBf16>());
    case WeightForm::kBf16x16:
      return visit(std::integral_constant<WeightForm, WeightForm::kBf16x16>());
    case WeightForm::kBf16x8:
      return visit(std::integral_constant<WeightForm, WeightForm::kBf16x8>());
    case WeightForm::kF16x8:
      return visit(std::integral_constant<WeightForm, WeightForm::kF16x8>());
    case WeightForm::kBf16Stochastic:
      return visit(std::integral_constant<WeightForm, WeightForm::kBf16Stochastic>());
  }
  return visit(std::integral_constant<WeightForm, WeightForm::kF32>());
}

template <class Visit>
HWY_INLINE auto by_form(StateForm form, const Visit& visit) {
  switch (form) {
    case StateForm::kF32:
      break;
    case StateForm::kBf16:
      return visit(std::integral_constant<StateForm, StateForm::kBf16>());
    case StateForm::kInt8:
      return visit(std::integral_constant<StateForm, StateForm::kInt8>());
  }
  return visit(std::integral_constant<StateForm, StateForm::kF32>());
}

// All parts of Lanes(d) weights from `i` on.
template <WeightForm F, class D>
HWY_INLINE hn::Vec<D> load_weights(D d, const ParamStorage& storage, size_t i) {
  if constexpr (kIsSplit<F>) {
    return sv::merge_load<kScheme<F>>(d, high_part(storage), low_part<F>(storage), i);
  } else {
    return sv::load_as_f32<kMain<F>>(d, storage.main, i);
  }
}

// n < Lanes(d) of them.
template <WeightForm F, class D>
HWY_INLINE hn::Vec<D> load_n_weights(D d, const ParamStorage& storage, size_t i, size_t n) {
  if constexpr (kIsSplit<F>) {
    return sv::merge_load_n<kScheme<F>>(d, high_part(storage), low_part<F>(storage), i, n);
  } else {
    return sv::load_n_as_f32<kMain<F>>(d, storage.main, i, n);
  }
}

// To nearest, in every form.
template <WeightForm F, class D>
HWY_INLINE void store_weights(D d, hn::Vec<D> w, const ParamStorage& storage, size_t i) {
  if constexpr (kIsSplit<F>) {
    sv::split_store<kScheme<F>>(d, w, high_part(storage), low_part<F>(storage), i);
  } else {
    sv::store_from_f32<kMain<F>>(d, w, storage.main, i);
  }
  if constexpr (F == WeightForm::kF32AndBf16) {
    sv::store_from_f32<Format::kBf16>(d, w, storage.working, i);
  }
}

template <WeightForm F, class D>
HWY_INLINE void store_n_weights(D d, hn::Vec<D> w, const ParamStorage& storage, size_t i,
                                size_t n) {
  if constexpr (kIsSplit<F>) {
    sv::split_store_n<kScheme<F>>(d, w, high_part(storage), low_part<F>(storage), i, n);
  } else {
    sv::store_n_from_f32<kMain<F>>(d, w, storage.main, i, n);
  }
  if constexpr (F == WeightForm::kF32AndBf16) {
    sv::store_n_from_f32<Format::kBf16>(d, w, storage.working, i, n);
  }
}

template <class D>
HWY_INLINE void store_bf16_stochastic(D d, const float* HWY_RESTRICT run, size_t n, NoiseKey key,
                                      std::byte* part, size_t at) {
  const hn::RebindToUnsigned<D> du;
  for (size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto random = sv::noise(du, key, static_cast<uint32_t>(at + i));
    sv::store_stochastic<Format::kBf16>(d, hn::Load(d, run + i), random, part, at + i);
  }
}

template <WeightForm F>
HWY_INLINE float* open_weights_as(const ParamStorage& storage, size_t at, size_t n,
                                  float* HWY_RESTRICT scratch) {
  if constexpr (!kIsSplit<F> && kMain<F> == Format::kF32) {
    return reinterpret_cast<float*>(storage.main) + at;
  } else {
    const Lanes32 d;
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      hn::Store(load_weights<F>(d, storage, at + i), d, scratch + i);
    }
    return scratch;
  }
}

template <WeightForm F>
HWY_INLINE void close_weights_as(const ParamStorage& storage, size_t at, size_t n,
                                 const float* HWY_RESTRICT run, const NoiseKeys& keys) {
  const Lanes32 d;
  if constexpr (F == WeightForm::kBf16Stochastic) {
    store_bf16_stochastic(d, run, n, keys.weights, storage.main, at);
  } else if constexpr (kIsSplit<F>) {
    static_assert(kBlock % (2 * hn::MaxLanes(d)) == 0);
    for (size_t i = 0; i < n; i += 2 * hn::Lanes(d)) {
      sv::split_store_two<kScheme<F>>(d, hn::Load(d, run + i), hn::Load(d, run + i + hn::Lanes(d)),
                                      high_part(storage), low_part<F>(storage), at + i);
    }
  } else if constexpr (F != WeightForm::kF32) {
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      store_weights<F>(d, hn::Load(d, run + i), storage, at + i);
    }
  }
}

enum class Moment { kFirst, kSecond };

HWY_INLINE uint16_t* scales_at(std::byte* scales, size_t at) {
  return reinterpret_cast<uint16_t*>(scales) + at / kBlock;
}

// In all lanes, of the block in which `i` lies; zeros where there is none.
template <StateForm F, Moment M, class D>
HWY_INLINE hn::Vec<D> moment_scale(D d, const ParamStorage& storage, size_t i) {
  std::byte* const scales = M == Moment::kFirst ? storage.first_scale : storage.second_scale;
  if (F != StateForm::kInt8 || scales == nullptr) return hn::Zero(d);
  return sv::state_scale_lanes(d, *scales_at(scales, i));
}

// Lanes(d) values of a moment from `i` on, `scale` being that of its block; zeros where it is not
// kept.
template <StateForm F, Moment M, class D>
HWY_INLINE hn::Vec<D> load_moment(D d, const ParamStorage& storage, size_t i,
                                  [[maybe_unused]] hn::Vec<D> scale) {
  const std::byte* const part = M == Moment::kFirst ? storage.first : storage.second;
  if (part == nullptr) return hn::Zero(d);
  if constexpr (F == StateForm::kF32) {
    return hn::Load(d, reinterpret_cast<const float*>(part) + i);
  } else if constexpr (F == StateForm::kBf16) {
    return sv::load_as_f32<Format::kBf16>(d, part, i);
  } else if constexpr (M == Moment::kFirst) {
    const auto* codes = reinterpret_cast<const int8_t*>(part);
    return sv::load_first_moment(d, codes, scale, i);
  } else {
    const auto* codes = reinterpret_cast<const uint8_t*>(part);
    return sv::load_second_moment(d, codes, scale, i);
  }
}

// Where a run's new values go until it is closed.
template <StateForm F, Moment M>
HWY_INLINE float* moment_run(const ParamStorage& storage, size_t at, float* scratch) {
  std::byte* const part = M == Moment::kFirst ? storage.first : storage.second;
  return F == StateForm::kF32 && part != nullptr ? reinterpret_cast<float*>(part) + at : scratch;
}

// `roots`: of a second moment.
template <StateForm F, Moment M>
HWY_INLINE void close_moment(const ParamStorage& storage, size_t at, size_t n,
                             const float* HWY_RESTRICT run, const float* HWY_RESTRICT roots,
                             const NoiseKeys& keys) {
  const Lanes32 d;
  std::byte* const part = M == Moment::kFirst ? storage.first : storage.second;
  std::byte* const scales = M == Moment::kFirst ? storage.first_scale : storage.second_scale;
  if (part == nullptr) return;
  if constexpr (F == StateForm::kBf16) {
    store_bf16_stochastic(d, run, n, M == Moment::kFirst ? keys.first : keys.second, part, at);
  } else if constexpr (F == StateForm::kInt8 && M == Moment::kFirst) {
    auto* codes = reinterpret_cast<int8_t*>(part) + at;
    sv::store_first_moments(d, run, n / kBlock, codes, scales_at(scales, at));
  } else if constexpr (F == StateForm::kInt8) {
    auto* codes = reinterpret_cast<uint8_t*>(part) + at;
    sv::store_second_moments(d, roots, n / kBlock, codes, scales_at(scales, at), keys.second,
                             static_cast<uint32_t>(at));
  }
}

HWY_INLINE float* open_weights(const ParamStorage& storage, size_t at, size_t n, float* scratch) {
  return by_form(storage.weight_form, [&](auto form) HWY_ATTR {
    return open_weights_as<form.value>(storage, at, n, scratch);
  });
}

HWY_INLINE void close_weights(const ParamStorage& storage, size_t at, size_t n, const float* run,
                              const NoiseKeys& keys) {
  by_form(storage.weight_form,
          [&](auto form) HWY_ATTR { close_weights_as<form.value>(storage, at, n, run, keys); });
}

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
