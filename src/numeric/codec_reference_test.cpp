// Split weights and 8-bit state: the promises of Note [Split weights] and Note [State in 8
// word_of].
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "numeric/noise.h"
#include "numeric/round.h"
#include "numeric/split.h"
#include "numeric/state8.h"

namespace tri::numeric {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

uint32_t word_of(float value) { return std::bit_cast<uint32_t>(value); }

// Every sign and exponent but the last, with mantissas around each carry and at random.
std::vector<float> finite_samples() {
  std::vector<float> out;
  const NoiseKey key = noise_key(9, 9, 9);
  for (uint32_t top = 0; top < 512; ++top) {
    if ((top & 255) == 255) continue;
    for (uint32_t i = 0; i < 64; ++i) {
      out.push_back(std::bit_cast<float>(top << 23 | (noise(key, top * 64 + i) & 0x7fffff)));
    }
    for (int bit = 0; bit < 23; ++bit) {
      for (const uint32_t m : {(1u << bit) - 1, 1u << bit, 0x800000u - (1u << bit)}) {
        out.push_back(std::bit_cast<float>(top << 23 | (m & 0x7fffff)));
      }
    }
  }
  return out;
}

struct Scheme {
  Format working;
  int mantissa_bits;  // of the finer grid
  Split8 (*split)(float) noexcept;
  float (*merge)(Split8) noexcept;
};
constexpr Scheme kSchemes[] = {{Format::kBf16, 15, split_bf16_8, merge_bf16_8},
                               {Format::kF16, 18, split_f16_8, merge_f16_8}};

TEST(Split8, ErrorIsHalfAStepOfTheFinerGrid) {
  for (const Scheme& scheme : kSchemes) {
    SCOPED_TRACE(spec(scheme.working).name);
    const int lowest = 1 - spec(scheme.working).bias;
    for (const float value : finite_samples()) {
      const float back = scheme.merge(scheme.split(value));
      const int exponent = std::max(value == 0 ? lowest : std::ilogb(value), lowest);
      if (exponent > max_exponent(scheme.working)) {
        ASSERT_EQ(back, std::copysign(kInf, value));
        continue;
      }
      if (std::isinf(back)) {  // rounded out of the last binade
        const double limit = std::ldexp(2.0 - std::ldexp(1.0, -scheme.mantissa_bits - 1), exponent);
        ASSERT_GE(std::fabs(static_cast<double>(value)), limit);
        continue;
      }
      const double error = std::fabs(static_cast<double>(back) - static_cast<double>(value));
      ASSERT_LE(error, std::ldexp(1.0, exponent - scheme.mantissa_bits - 1))
          << std::hexfloat << value;
      ASSERT_EQ(std::signbit(back), std::signbit(value));
    }
  }
}

TEST(Split8, SecondRoundTripChangesNothing) {
  for (const Scheme& scheme : kSchemes) {
    for (const float value : finite_samples()) {
      const Split8 parts = scheme.split(value);
      ASSERT_EQ(scheme.split(scheme.merge(parts)), parts) << std::hexfloat << value;
    }
  }
}

// Ties of the working format go away from zero, and a value that is rounded onto a tie of it by the
// finer grid goes with them: half a finer step beyond half an ulp.
TEST(Split8, WorkingWeightIsTheNearest) {
  for (const Scheme& scheme : kSchemes) {
    const FormatSpec& s = spec(scheme.working);
    for (const float value : finite_samples()) {
      if (std::fabs(value) >= overflow_threshold(scheme.working) * 0.999f) continue;
      const double high = decode(scheme.working, scheme.split(value).high);
      const int exponent = std::max(value == 0 ? -999 : std::ilogb(value), 1 - s.bias);
      const double half_ulp = std::ldexp(1.0, exponent - s.mantissa_bits - 1);
      const double finer = std::ldexp(1.0, exponent - scheme.mantissa_bits - 1);
      ASSERT_LE(std::fabs(high - static_cast<double>(value)), half_ulp + finer)
          << std::hexfloat << value;
    }
  }
}

TEST(Split8, NotANumberAndInfinityShowInTheWorkingWeight) {
  for (const Scheme& scheme : kSchemes) {
    for (const uint32_t word : {0x7f800001u, 0x7fffffffu, 0xff80ffffu, 0xffffffffu}) {
      const Split8 parts = scheme.split(std::bit_cast<float>(word));
      EXPECT_TRUE(std::isnan(decode(scheme.working, parts.high)));
      EXPECT_TRUE(std::isnan(scheme.merge(parts)));
    }
    EXPECT_EQ(scheme.merge(scheme.split(-kInf)), -kInf);
  }
  // Above the threshold the working weight is inf, the merged one is not.
  const Split8 parts = split_f16_8(65530.0f);
  EXPECT_EQ(decode(Format::kF16, parts.high), kInf);
  EXPECT_EQ(merge_f16_8(parts), 65530.0f);
}

TEST(Split16, IsExact) {
  for (const float value : finite_samples()) {
    const Split16 parts = split_bf16_16(value);
    ASSERT_EQ(word_of(merge_bf16_16(parts)), word_of(value));
    ASSERT_EQ(parts.high, encode(Format::kBf16, value, Rounding::kNearestAway).bits);
  }
  EXPECT_EQ(merge_bf16_16(split_bf16_16(-kInf)), -kInf);
  const Split16 nan = split_bf16_16(std::bit_cast<float>(0x7fffffffu));
  EXPECT_TRUE(std::isnan(decode(Format::kBf16, nan.high)));
  EXPECT_TRUE(std::isnan(merge_bf16_16(nan)));
}

// Cubes of uniform values: many small ones beside few large ones, as gradients are.
std::vector<float> group(int exponent, uint32_t seed) {
  std::vector<float> out(kStateGroup);
  const NoiseKey key = noise_key(seed, 0, 0);
  for (uint32_t i = 0; i < kStateGroup; ++i) {
    const float unit = std::ldexp(static_cast<float>(static_cast<int32_t>(noise(key, i))), -31);
    out[i] = std::ldexp(unit * unit * unit, exponent);
  }
  return out;
}

// q is at most half a step of 1/127 off (and a few ulp); the expander y = t / (2 - |t|) has the
// slope 2 / (2 - |t|)^2, which grows with |t|.
TEST(State8, FirstMomentIsWithinTheSlopeOfItsExpander) {
  for (int exponent = -100; exponent <= 100; exponent += 4) {
    for (uint32_t seed = 0; seed < 16; ++seed) {
      const std::vector<float> x = group(exponent, seed);
      std::vector<int8_t> codes(kStateGroup);
      std::vector<float> back(kStateGroup);
      const uint16_t scale = encode_first_moment(x.data(), kStateGroup, codes.data());
      decode_first_moment(codes.data(), scale, kStateGroup, back.data());
      const double s = decode(Format::kBf16, scale);
      for (size_t i = 0; i < kStateGroup; ++i) {
        const double y = std::fabs(static_cast<double>(x[i])) / s;
        ASSERT_LE(y, 1.0);
        const double t = std::min(1.0, 2 * y / (1 + y) + 1.0 / 254);
        const double bound = (1.0 / 254 + 0x1p-20) * 2 / ((2 - t) * (2 - t));
        ASSERT_LE(std::fabs(static_cast<double>(back[i]) - static_cast<double>(x[i])), s * bound);
      }
    }
  }
}

TEST(State8, SecondMomentIsWithinAStepOfItsRoot) {
  for (int exponent = -60; exponent <= 100; exponent += 4) {
    std::vector<float> v = group(exponent, 5);
    for (float& x : v) x = std::fabs(x);
    v[3] = 0.0f;
    std::vector<uint8_t> codes(kStateGroup);
    std::vector<float> back(kStateGroup);
    const uint16_t scale =
        encode_second_moment(v.data(), kStateGroup, codes.data(), noise_key(1, 2, 3), 17);
    decode_second_moment(codes.data(), scale, kStateGroup, back.data());
    const double step = decode(Format::kBf16, scale) / 255.0;
    for (size_t i = 0; i < kStateGroup; ++i) {
      const double root = std::sqrt(static_cast<double>(v[i]));
      const double error = std::fabs(std::sqrt(static_cast<double>(back[i])) - root);
      ASSERT_LE(error, step * (1 + 0x1p-12));
      ASSERT_EQ(codes[i] == 0, v[i] == 0.0f);
    }
  }
}

// The probability of the next code is the fraction: over n roundings the mean is off by at most
// five standard deviations of sqrt(1/4 / n) codes, and 2^-12 that the ends of the dither leave out.
TEST(State8, SecondMomentIsRoundedWithoutBias) {
  constexpr int kTimes = 4000;
  const std::vector<float> roots = {1.0f, 0.9f, 0.5011f, 0.2503f, 0.0871f, 0.0100f};
  std::vector<float> v, sums(roots.size(), 0.0f);
  for (const float root : roots) v.push_back(root * root);
  for (int time = 0; time < kTimes; ++time) {
    std::vector<uint8_t> codes(v.size());
    ASSERT_EQ(encode_second_moment(v.data(), v.size(), codes.data(), noise_key(1, time, 0), 0),
              0x3f80);
    for (size_t i = 0; i < v.size(); ++i) sums[i] += static_cast<float>(codes[i]);
  }
  for (size_t i = 0; i < v.size(); ++i)
    EXPECT_NEAR(sums[i] / kTimes, roots[i] * 255.0f, 5 * 0.5 / std::sqrt(kTimes) + 0x1p-12);
}

// Adam's second moment without a gradient falls by 0.999 a step, a twentieth of a code and less: to
// the nearest it would stay for ever. Of a walk whose steps have the probability of the fall, the
// variance is at most the distance: 79 codes, so the mean of 31 is off by at most 5 sqrt(79 / 31).
TEST(State8, SecondMomentFollowsASlowDecay) {
  constexpr int kSteps = 1000;
  constexpr double kStart = 200;
  std::vector<float> v(kStateGroup, static_cast<float>(kStart / 255 * (kStart / 255)));
  v[0] = 1;  // keeps the scale
  for (int step = 0; step < kSteps; ++step) {
    for (size_t i = 1; i < v.size(); ++i) v[i] *= 0.999f;
    std::vector<uint8_t> codes(kStateGroup);
    const uint16_t scale =
        encode_second_moment(v.data(), kStateGroup, codes.data(), noise_key(0, step, 0), 0);
    decode_second_moment(codes.data(), scale, kStateGroup, v.data());
  }
  double mean = 0;
  for (size_t i = 1; i < v.size(); ++i) mean += std::sqrt(static_cast<double>(v[i])) * 255 / 31;
  const double want = kStart * std::pow(0.999, kSteps / 2.0);
  EXPECT_NEAR(mean, want, 5 * std::sqrt((kStart - want) / 31));
}

TEST(State8, EveryCodeSurvivesARoundTrip) {
  // The largest code fixes the scale; a power of two is a bf16.
  for (int code = -127; code <= 127; ++code) {
    int8_t codes[2] = {127, static_cast<int8_t>(code)};
    float values[2];
    decode_first_moment(codes, 0x3f80, 2, values);
    int8_t again[2];
    EXPECT_EQ(encode_first_moment(values, 2, again), 0x3f80);
    EXPECT_EQ(again[1], codes[1]);
  }
  for (int code = 0; code <= 255; ++code) {
    uint8_t codes[2] = {255, static_cast<uint8_t>(code)};
    float values[2];
    decode_second_moment(codes, 0x3f80, 2, values);
    for (uint32_t index = 0; index < 100; ++index) {
      uint8_t again[2];
      EXPECT_EQ(encode_second_moment(values, 2, again, noise_key(4, 5, 6), index), 0x3f80);
      EXPECT_EQ(again[1], codes[1]);
    }
  }
}

TEST(State8, ZerosStayZeroAndBrokenNumbersShow) {
  std::vector<float> x(kStateGroup, 0.0f);
  std::vector<int8_t> codes(kStateGroup, 1);
  EXPECT_EQ(encode_first_moment(x.data(), kStateGroup, codes.data()), 0);
  EXPECT_EQ(codes, std::vector<int8_t>(kStateGroup, 0));
  x[31] = -kInf;
  const uint16_t scale = encode_first_moment(x.data(), kStateGroup, codes.data());
  EXPECT_EQ(scale, kPoisonedScale);
  decode_first_moment(codes.data(), scale, kStateGroup, x.data());
  EXPECT_TRUE(std::all_of(x.begin(), x.end(), [](float v) { return std::isnan(v); }));
}

}  // namespace
}  // namespace tri::numeric
