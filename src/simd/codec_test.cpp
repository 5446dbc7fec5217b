// split-inl.h, state8-inl.h and random-inl.h: the same bits as their scalar references, on every
// runnable target.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "numeric/noise.h"
#include "numeric/split.h"

#ifndef TRI_SIMD_CODEC_TEST_NOISE_
#define TRI_SIMD_CODEC_TEST_NOISE_
namespace tri::simd {
constexpr numeric::NoiseKey kStateNoise{0x12345678, 0x9abcdef0};
}
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/codec_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd/random-inl.h"
#include "simd/split-inl.h"
#include "simd/state8-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace {

// fp32 to parts and back. `low` holds n bytes or n 16-bit words, as the scheme wants.
template <SplitScheme S>
void split_as(const float* src, uint16_t* high, void* low_base, float* back, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  auto* low = static_cast<Extra<S>*>(low_base);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    split_store_two<S>(df, hn::LoadU(df, src + i), hn::LoadU(df, src + i + lanes), high, low, i);
    hn::StoreU(merge_load<S>(df, high, low, i), df, back + i);
    hn::StoreU(merge_load<S>(df, high, low, i + lanes), df, back + i + lanes);
  }
  // The same again, one by one, over the second half.
  for (i = i / 2 / lanes * lanes; i + lanes <= n; i += lanes) {
    split_store<S>(df, hn::LoadU(df, src + i), high, low, i);
    hn::StoreU(merge_load<S>(df, high, low, i), df, back + i);
  }
  if (i == n) return;
  split_store_n<S>(df, load_n_as_f32<Format::kF32>(df, src, i, n - i), high, low, i, n - i);
  const auto merged = merge_load_n<S>(df, high, low, i, n - i);
  store_n_from_f32<Format::kF32>(df, merged, back, i, n - i);
}

void split_any(SplitScheme scheme, const float* src, uint16_t* high, void* low, float* back,
               size_t n) {
  switch (scheme) {
    case SplitScheme::kBf16Plus8:
      return split_as<SplitScheme::kBf16Plus8>(src, high, low, back, n);
    case SplitScheme::kBf16Plus16:
      return split_as<SplitScheme::kBf16Plus16>(src, high, low, back, n);
    case SplitScheme::kF16Plus8:
      return split_as<SplitScheme::kF16Plus8>(src, high, low, back, n);
  }
}

void first_moments(const float* src, size_t groups, uint32_t, int8_t* codes, uint16_t* scales,
                   float* back) {
  const hn::ScalableTag<float> df;
  store_first_moments(df, src, groups, codes, scales);
  for (size_t i = 0; i < groups * numeric::kStateGroup; i += hn::Lanes(df)) {
    hn::StoreU(
        load_first_moment(df, codes, state_scale_lanes(df, scales[i / numeric::kStateGroup]), i),
        df, back + i);
  }
}

void second_moments(const float* src, size_t groups, uint32_t index, uint8_t* codes,
                    uint16_t* scales, float* back) {
  const hn::ScalableTag<float> df;
  std::vector<float> roots(groups * numeric::kStateGroup);
  for (size_t i = 0; i < roots.size(); ++i) roots[i] = std::sqrt(src[i]);
  store_second_moments(df, roots.data(), groups, codes, scales, kStateNoise, index);
  for (size_t i = 0; i < roots.size(); i += hn::Lanes(df)) {
    hn::StoreU(
        load_second_moment(df, codes, state_scale_lanes(df, scales[i / numeric::kStateGroup]), i),
        df, back + i);
  }
}

// n is a multiple of every vector length.
void fill_noise(numeric::NoiseKey key, uint32_t first, uint32_t* dst, size_t n) {
  const hn::ScalableTag<uint32_t> du;
  for (size_t i = 0; i < n; i += hn::Lanes(du)) {
    hn::StoreU(noise(du, key, first + static_cast<uint32_t>(i)), du, dst + i);
  }
}

}  // namespace
}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "numeric/state8.h"
#include "simd/target_fixture.h"

namespace tri::simd {

HWY_EXPORT(split_any);
HWY_EXPORT(first_moments);
HWY_EXPORT(second_moments);
HWY_EXPORT(fill_noise);

namespace {

using numeric::SplitScheme;

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// All signs and exponents, mantissas around every carry of the three schemes; an odd count.
std::vector<float> samples() {
  std::vector<float> out;
  for (uint32_t top = 0; top < 512; ++top) {
    for (int bit = 0; bit <= 23; ++bit) {
      for (const uint32_t m : {(1u << bit) - 1, 1u << bit, 3u << bit, 0x800000u - (1u << bit)}) {
        out.push_back(std::bit_cast<float>(top << 23 | (m & 0x7fffff)));
      }
    }
  }
  out.push_back(1.0f);
  return out;
}

class CodecTest : public TargetTest {};
TRI_FOR_EACH_TARGET(CodecTest);

template <class Low, class Split, class Merge>
void expect_same_split(SplitScheme scheme, Split split, Merge merge) {
  const std::vector<float> src = samples();
  std::vector<uint16_t> high(src.size());
  std::vector<Low> low(src.size());
  std::vector<float> back(src.size());
  HWY_DYNAMIC_DISPATCH(split_any)
  (scheme, src.data(), high.data(), low.data(), back.data(), src.size());
  for (size_t i = 0; i < src.size(); ++i) {
    const auto want = split(src[i]);
    ASSERT_EQ(high[i], want.high) << std::hex << bits(src[i]);
    ASSERT_EQ(low[i], want.low) << std::hex << bits(src[i]);
    ASSERT_EQ(bits(back[i]), bits(merge(want))) << std::hex << bits(src[i]);
  }
}

TEST_P(CodecTest, SplitsAsTheReference) {
  expect_same_split<int8_t>(SplitScheme::kBf16Plus8, numeric::split_bf16_8, numeric::merge_bf16_8);
  expect_same_split<int16_t>(SplitScheme::kBf16Plus16, numeric::split_bf16_16,
                             numeric::merge_bf16_16);
  expect_same_split<int8_t>(SplitScheme::kF16Plus8, numeric::split_f16_8, numeric::merge_f16_8);
}

// Groups over the whole range of scales, with zeros, and the last ones with inf and NaN.
std::vector<float> groups() {
  constexpr size_t kN = numeric::kStateGroup;
  std::vector<float> out;
  const numeric::NoiseKey key = numeric::noise_key(1, 2, 3);
  for (int exponent = -149; exponent < 128; ++exponent) {
    for (size_t i = 0; i < kN; ++i) {
      const auto index = static_cast<uint32_t>(out.size());
      const auto random = static_cast<int32_t>(numeric::noise(key, index));
      const float unit = std::ldexp(static_cast<float>(random), -31);
      out.push_back(index % 7 == 0 ? 0.0f : std::ldexp(unit * unit * unit, exponent));
    }
  }
  out.insert(out.end(), kN, 0.0f);
  for (const float special :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::max()}) {
    out.insert(out.end(), kN, 1.0f);
    out[out.size() - 15] = special;
  }
  return out;
}

// All groups at once, and every group as the only one.
template <class CodeType, class Vector, class Encode, class Decode>
void expect_same_state(const std::vector<float>& src, Vector vector, Encode encode, Decode decode) {
  constexpr size_t kN = numeric::kStateGroup;
  constexpr uint32_t kFirst = 0xffffff80;  // noise runs through the end of its index
  const size_t groups = src.size() / kN;
  std::vector<CodeType> codes(src.size()), want_codes(kN), alone(kN);
  std::vector<float> back(src.size()), want_back(kN);
  std::vector<uint16_t> scales(groups);
  vector(src.data(), groups, kFirst, codes.data(), scales.data(), back.data());
  for (size_t g = 0; g < groups; ++g) {
    SCOPED_TRACE(g);
    const auto index = kFirst + static_cast<uint32_t>(g * kN);
    const uint16_t scale = encode(src.data() + g * kN, kN, want_codes.data(), index);
    ASSERT_EQ(scales[g], scale);
    decode(want_codes.data(), scale, kN, want_back.data());
    for (size_t i = 0; i < kN; ++i) {
      ASSERT_EQ(codes[g * kN + i], want_codes[i]) << src[g * kN + i];
      if (scale == numeric::kPoisonedScale) {
        ASSERT_TRUE(std::isnan(back[g * kN + i]) && std::isnan(want_back[i]));
      } else {
        ASSERT_EQ(bits(back[g * kN + i]), bits(want_back[i])) << src[g * kN + i];
      }
    }
    uint16_t only;
    vector(src.data() + g * kN, 1, index, alone.data(), &only, want_back.data());
    ASSERT_EQ(only, scale);
    ASSERT_EQ(alone, want_codes);
  }
}

TEST_P(CodecTest, StateAsTheReference) {
  std::vector<float> all = groups();
  ASSERT_NE(all.size() / numeric::kStateGroup % 8, 0u) << "the last groups are to be fewer";
  expect_same_state<int8_t>(
      all, HWY_DYNAMIC_DISPATCH(first_moments),
      [](const float* src, size_t n, int8_t* codes, uint32_t) {
        return numeric::encode_first_moment(src, n, codes);
      },
      numeric::decode_first_moment);
  for (float& x : all) x = std::fabs(x);
  expect_same_state<uint8_t>(
      all, HWY_DYNAMIC_DISPATCH(second_moments),
      [](const float* src, size_t n, uint8_t* codes, uint32_t index) {
        return numeric::encode_second_moment(src, n, codes, kStateNoise, index);
      },
      numeric::decode_second_moment);
}

TEST_P(CodecTest, NoiseAsTheReference) {
  const numeric::NoiseKey key = numeric::noise_key(5, 6, 7);
  constexpr uint32_t kFirst = 0xffffff80;  // runs through the end of the index
  std::vector<uint32_t> words(256);
  HWY_DYNAMIC_DISPATCH(fill_noise)(key, kFirst, words.data(), words.size());
  for (size_t i = 0; i < words.size(); ++i) {
    ASSERT_EQ(words[i], numeric::noise(key, kFirst + static_cast<uint32_t>(i)));
  }
}

}  // namespace
}  // namespace tri::simd
#endif  // HWY_ONCE
