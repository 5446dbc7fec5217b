#include "optim/storage.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"

namespace tri::optim {
namespace {

constexpr size_t kAlignment = 64;

constexpr std::string_view kWeightForms[] = {"fp32",   "fp32+bf16", "bf16+16",
                                             "bf16+8", "fp16+8",    "bf16sr"};
constexpr std::string_view kStateForms[] = {"fp32", "bf16", "int8"};

template <class Enum>
std::optional<Enum> parse(std::span<const std::string_view> names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

size_t blocks(size_t count) { return (count + kBlock - 1) / kBlock; }

// Bytes of a part with `bytes` per element.
size_t part(size_t count, size_t bytes) {
  const size_t size = blocks(count) * kBlock * bytes;
  return (size + kAlignment - 1) / kAlignment * kAlignment;
}

size_t moment_bytes(StateForm form) {
  switch (form) {
    case StateForm::kF32:
      return 4;
    case StateForm::kBf16:
      return 2;
    case StateForm::kInt8:
      return 1;
  }
  TRI_CHECK(false, "state form {}", static_cast<int>(form));
}

// One bf16 per block.
size_t scale_bytes(StateForm form, size_t count) {
  return form == StateForm::kInt8 ? part(blocks(count), 2) : 0;
}

std::byte* take(std::byte*& at, size_t bytes) {
  if (bytes == 0) return nullptr;
  std::byte* const here = at;
  at += bytes;
  return here;
}

}  // namespace

ElementBytes element_bytes(WeightForm weight_form, StateForm state_form) {
  const size_t moment = moment_bytes(state_form);
  switch (weight_form) {
    case WeightForm::kF32:
      return {4, 0, 0, moment};
    case WeightForm::kF32AndBf16:
      return {4, 0, 2, moment};
    case WeightForm::kBf16x16:
      return {2, 2, 0, moment};
    case WeightForm::kBf16x8:
    case WeightForm::kF16x8:
      return {2, 1, 0, moment};
    case WeightForm::kBf16Stochastic:
      return {2, 0, 0, moment};
  }
  TRI_CHECK(false, "weight form {}", static_cast<int>(weight_form));
}

std::string_view name(WeightForm form) { return kWeightForms[static_cast<size_t>(form)]; }
std::string_view name(StateForm form) { return kStateForms[static_cast<size_t>(form)]; }
std::optional<WeightForm> parse_weight_form(std::string_view name) {
  return parse<WeightForm>(kWeightForms, name);
}
std::optional<StateForm> parse_state_form(std::string_view name) {
  return parse<StateForm>(kStateForms, name);
}

size_t weight_bytes(WeightForm form, size_t count) {
  const ElementBytes bytes = element_bytes(form, StateForm::kF32);
  return part(count, bytes.main) + part(count, bytes.remainder) + part(count, bytes.working);
}

size_t state_bytes(StateForm form, size_t count, size_t moments) {
  return moments * (part(count, moment_bytes(form)) + scale_bytes(form, count));
}

ParamStorage bind(WeightForm weight_form, StateForm state_form, size_t count, size_t moments,
                  std::byte* weights, std::byte* state) {
  TRI_CHECK(moments <= 2 && (moments == 0 || state != nullptr), "moments = {}", moments);
  TRI_CHECK(weights != nullptr && reinterpret_cast<uintptr_t>(weights) % kAlignment == 0);
  TRI_CHECK(reinterpret_cast<uintptr_t>(state) % kAlignment == 0);
  const ElementBytes bytes = element_bytes(weight_form, state_form);
  ParamStorage storage{.weight_form = weight_form, .state_form = state_form, .count = count};
  storage.main = take(weights, part(count, bytes.main));
  storage.remainder = take(weights, part(count, bytes.remainder));
  storage.working = take(weights, part(count, bytes.working));
  if (moments >= 1) {
    storage.first = take(state, part(count, bytes.moment));
    storage.first_scale = take(state, scale_bytes(state_form, count));
  }
  if (moments == 2) {
    storage.second = take(state, part(count, bytes.moment));
    storage.second_scale = take(state, scale_bytes(state_form, count));
  }
  return storage;
}

void clear_storage(const ParamStorage& storage) {
  const auto zero = [](std::byte* at, size_t bytes) {
    if (at != nullptr) std::memset(at, 0, bytes);
  };
  std::memset(storage.main, 0, weight_bytes(storage.weight_form, storage.count));
  zero(storage.first, part(storage.count, moment_bytes(storage.state_form)));
  zero(storage.second, part(storage.count, moment_bytes(storage.state_form)));
  zero(storage.first_scale, scale_bytes(storage.state_form, storage.count));
  zero(storage.second_scale, scale_bytes(storage.state_form, storage.count));
}

void init_storage(const ParamStorage& storage, std::span<const float> values) {
  TRI_CHECK(values.size() == storage.count, "{} != {}", values.size(), storage.count);
  clear_storage(storage);
  write_weights(storage, 0, values);
}

WorkingWeights working_weights(const ParamStorage& storage) {
  switch (storage.weight_form) {
    case WeightForm::kF32:
      return {storage.main, numeric::Format::kF32};
    case WeightForm::kF32AndBf16:
      return {storage.working, numeric::Format::kBf16};
    case WeightForm::kF16x8:
      return {storage.main, numeric::Format::kF16};
    case WeightForm::kBf16x16:
    case WeightForm::kBf16x8:
    case WeightForm::kBf16Stochastic:
      return {storage.main, numeric::Format::kBf16};
  }
  TRI_CHECK(false, "weight form {}", static_cast<int>(storage.weight_form));
}

}  // namespace tri::optim
