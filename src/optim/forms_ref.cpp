#include "optim/forms_ref.h"

#include <cstring>

#include "numeric/round.h"
#include "numeric/split.h"
#include "numeric/state8.h"

namespace tri::optim {
namespace {

using numeric::Format;

template <class T>
T get(const std::byte* part, size_t i) {
  T value;
  std::memcpy(&value, part + i * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(std::byte* part, size_t i, T value) {
  std::memcpy(part + i * sizeof(T), &value, sizeof(T));
}

float get_bf16(const std::byte* part, size_t i) {
  return numeric::decode(Format::kBf16, get<uint16_t>(part, i));
}

void put_bf16_stochastic(std::byte* part, size_t i, float value, numeric::NoiseKey key) {
  const uint32_t random = numeric::noise(key, static_cast<uint32_t>(i));
  put(part, i,
      static_cast<uint16_t>(numeric::encode_stochastic(Format::kBf16, value, random).bits));
}

template <class Split>
void put_split(const ParamStorage& storage, size_t i, Split split) {
  put(storage.main, i, split.high);
  put(storage.remainder, i, split.low);
}

}  // namespace

float load_weight_ref(const ParamStorage& storage, size_t i) {
  switch (storage.weight_form) {
    case WeightForm::kF32:
    case WeightForm::kF32AndBf16:
      return get<float>(storage.main, i);
    case WeightForm::kBf16x16:
      return numeric::merge_bf16_16(
          {get<uint16_t>(storage.main, i), get<int16_t>(storage.remainder, i)});
    case WeightForm::kBf16x8:
      return numeric::merge_bf16_8(
          {get<uint16_t>(storage.main, i), get<int8_t>(storage.remainder, i)});
    case WeightForm::kF16x8:
      return numeric::merge_f16_8(
          {get<uint16_t>(storage.main, i), get<int8_t>(storage.remainder, i)});
    case WeightForm::kBf16Stochastic:
      return get_bf16(storage.main, i);
  }
  return 0;
}

void store_weight_ref(const ParamStorage& storage, size_t i, float w, numeric::NoiseKey key) {
  switch (storage.weight_form) {
    case WeightForm::kF32:
      return put(storage.main, i, w);
    case WeightForm::kF32AndBf16:
      put(storage.main, i, w);
      return put(storage.working, i, static_cast<uint16_t>(numeric::encode(Format::kBf16, w).bits));
    case WeightForm::kBf16x16:
      return put_split(storage, i, numeric::split_bf16_16(w));
    case WeightForm::kBf16x8:
      return put_split(storage, i, numeric::split_bf16_8(w));
    case WeightForm::kF16x8:
      return put_split(storage, i, numeric::split_f16_8(w));
    case WeightForm::kBf16Stochastic:
      return put_bf16_stochastic(storage.main, i, w, key);
  }
}

void load_moment_ref(const ParamStorage& storage, bool second, size_t at, float* block) {
  const std::byte* part = second ? storage.second : storage.first;
  const std::byte* scales = second ? storage.second_scale : storage.first_scale;
  std::memset(block, 0, kBlock * sizeof(float));
  if (part == nullptr) return;
  switch (storage.state_form) {
    case StateForm::kF32:
      for (size_t i = 0; i < kBlock; ++i) block[i] = get<float>(part, at + i);
      return;
    case StateForm::kBf16:
      for (size_t i = 0; i < kBlock; ++i) block[i] = get_bf16(part, at + i);
      return;
    case StateForm::kInt8:
      const auto scale = get<uint16_t>(scales, at / kBlock);
      if (second) {
        numeric::decode_second_moment(reinterpret_cast<const uint8_t*>(part + at), scale, kBlock,
                                      block);
      } else {
        numeric::decode_first_moment(reinterpret_cast<const int8_t*>(part + at), scale, kBlock,
                                     block);
      }
      return;
  }
}

void store_moment_ref(const ParamStorage& storage, bool second, size_t at, const float* block,
                      numeric::NoiseKey key) {
  std::byte* part = second ? storage.second : storage.first;
  std::byte* scales = second ? storage.second_scale : storage.first_scale;
  if (part == nullptr) return;
  switch (storage.state_form) {
    case StateForm::kF32:
      for (size_t i = 0; i < kBlock; ++i) put(part, at + i, block[i]);
      return;
    case StateForm::kBf16:
      for (size_t i = 0; i < kBlock; ++i) put_bf16_stochastic(part, at + i, block[i], key);
      return;
    case StateForm::kInt8:
      put(scales, at / kBlock,
          second
              ? numeric::encode_second_moment(block, kBlock, reinterpret_cast<uint8_t*>(part + at),
                                              key, static_cast<uint32_t>(at))
              : numeric::encode_first_moment(block, kBlock, reinterpret_cast<int8_t*>(part + at)));
      return;
  }
}

}  // namespace tri::optim
