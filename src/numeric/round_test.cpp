// The scalar reference against an independent one: a sorted list of all values of the format, built
// in double from the definition of FormatSpec, in which the nearest is looked up.
#include "numeric/round.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "numeric/noise.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tri::numeric {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr Format kNarrow[] = {Format::kBf16, Format::kF16, Format::kF16e6, Format::kF8e4b4,
                              Format::kF8e5};

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

// value[code] of the finite magnitudes, ascending; one more for where the next would be.
std::vector<double> magnitudes(const FormatSpec& s) {
  const int fields = (1 << s.exponent_bits) - (s.has_inf ? 1 : 0);
  std::vector<double> out;
  for (int field = 0; field < fields; ++field) {
    for (int m = 0; m < 1 << s.mantissa_bits; ++m) {
      const double fraction = std::ldexp(m, -s.mantissa_bits);
      out.push_back(field == 0 ? std::ldexp(fraction, 1 - s.bias)
                               : std::ldexp(1.0 + fraction, field - s.bias));
    }
  }
  out.push_back(std::ldexp(1.0, fields - s.bias));
  return out;
}

Encoded slow_encode(const FormatSpec& s, const std::vector<double>& grid, float value,
                    Rounding rounding) {
  const uint32_t sign = std::signbit(value) ? 1u << (s.exponent_bits + s.mantissa_bits) : 0u;
  const auto beyond = static_cast<uint32_t>(grid.size() - 1);  // inf where the format has it
  const double x = std::fabs(static_cast<double>(value));
  uint32_t code = beyond;
  if (x < grid.back()) {
    const auto above = std::upper_bound(grid.begin(), grid.end(), x);
    const auto low = static_cast<uint32_t>(above - grid.begin() - 1);
    const double down = x - grid[low];
    const double up = grid[low + 1] - x;
    const bool tie_up = rounding == Rounding::kNearestAway || low % 2 == 1;
    code = low + (up < down || (up == down && tie_up) ? 1 : 0);
  }
  const bool overflow = code == beyond || std::isnan(value);
  return {sign | (overflow && !s.has_inf ? beyond - 1 : code), overflow, code == 0 && x != 0};
}

// Every exponent with mantissas at, beside and halfway between the values of any of the formats.
std::vector<float> samples() {
  std::vector<float> out;
  const NoiseKey key = noise_key(1, 1, 1);
  for (uint32_t field = 0; field < 255; ++field) {
    for (uint32_t top = 0; top < 32; ++top) {
      for (const int bit : {13, 14, 15, 16, 19, 20, 21}) {
        for (const uint32_t around : {0u, 1u, 0xffffffffu}) {
          const uint32_t m = ((top << bit) + around) & 0x7fffff;
          out.push_back(std::bit_cast<float>((top & 1) << 31 | field << 23 | m));
        }
      }
      const uint32_t random = noise(key, field * 32 + top);
      out.push_back(std::bit_cast<float>((random & 0x807fffff) | field << 23));
    }
  }
  return out;
}

TEST(Round, EveryCodeSurvivesARoundTrip) {
  for (const Format format : kNarrow) {
    SCOPED_TRACE(spec(format).name);
    const std::vector<double> grid = magnitudes(spec(format));
    const auto codes = static_cast<uint32_t>(1u << 8 * storage_bytes(format));
    for (uint32_t code = 0; code < codes; ++code) {
      const float value = decode(format, code);
      const uint32_t magnitude = code & (codes / 2 - 1);
      if (std::isnan(value)) {
        ASSERT_TRUE(spec(format).has_inf && magnitude > grid.size() - 1) << code;
        const uint32_t quiet = 1u << (spec(format).mantissa_bits - 1);
        ASSERT_EQ(encode(format, value), (Encoded{code | quiet, true, false}));
        continue;
      }
      ASSERT_EQ(std::signbit(value), code >= codes / 2) << code;
      const bool infinite = std::isinf(value);
      ASSERT_EQ(infinite, spec(format).has_inf && magnitude == grid.size() - 1) << code;
      ASSERT_EQ(std::fabs(value), infinite ? kInfinity : grid[magnitude]) << code;
      for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kNearestAway}) {
        ASSERT_EQ(encode(format, value, rounding), (Encoded{code, infinite, false}));
      }
      ASSERT_EQ(encode_stochastic(format, value, 0xffffffff), (Encoded{code, infinite, false}));
    }
  }
}

TEST(Round, NearestIsTheNearestOfAllCodes) {
  const std::vector<float> values = samples();
  for (const Format format : kNarrow) {
    SCOPED_TRACE(spec(format).name);
    const std::vector<double> grid = magnitudes(spec(format));
    for (const float value : values) {
      for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kNearestAway}) {
        ASSERT_EQ(encode(format, value, rounding), slow_encode(spec(format), grid, value, rounding))
            << std::hexfloat << value;
      }
    }
  }
}

TEST(Round, SpecialValues) {
  EXPECT_EQ(encode(Format::kBf16, kInfinity), (Encoded{0x7f80, true, false}));
  EXPECT_EQ(encode(Format::kF16, -kInfinity), (Encoded{0xfc00, true, false}));
  EXPECT_EQ(encode(Format::kF16, kNan), (Encoded{0x7e00, true, false}));
  EXPECT_EQ(encode(Format::kF32, kNan), (Encoded{0x7fc00000, true, false}));
  EXPECT_EQ(encode(Format::kF32, 0x1p-149f), (Encoded{1, false, false}));
  EXPECT_EQ(encode(Format::kF8e4b4, -kInfinity), (Encoded{0xff, true, false}));
  EXPECT_EQ(encode(Format::kF8e4b4, kNan), (Encoded{0x7f, true, false}));
  EXPECT_EQ(encode(Format::kF8e5, -0.0f), (Encoded{0x80, false, false}));
  // A signalling NaN whose payload lies in the dropped bits must not become inf.
  EXPECT_EQ(encode(Format::kBf16, std::bit_cast<float>(0x7f800001u)).bits, 0x7fc0u);
}

TEST(Round, LandmarksOfPaperC) {
  EXPECT_EQ(max_finite(Format::kF8e4b4), 30.0f);
  EXPECT_EQ(overflow_threshold(Format::kF8e4b4), 31.0f);
  EXPECT_EQ(min_normal(Format::kF8e4b4), 0x1p-10f);
  EXPECT_EQ(min_subnormal(Format::kF8e4b4), 0x1p-13f);
  EXPECT_EQ(max_finite(Format::kF8e5), 114688.0f);
  EXPECT_EQ(min_subnormal(Format::kF8e5), 0x1p-16f);
  EXPECT_EQ(min_subnormal(Format::kF16e6), 0x1p-39f);
  EXPECT_EQ(max_finite(Format::kF16e6), 8581545984.0f);
  EXPECT_EQ(max_finite(Format::kF16), 65504.0f);
  EXPECT_EQ(overflow_threshold(Format::kF16), 65520.0f);
  EXPECT_EQ(max_finite(Format::kF32), std::numeric_limits<float>::max());
}

TEST(Round, OverflowStartsAtTheThreshold) {
  for (const Format format : kNarrow) {
    const float threshold = overflow_threshold(format);
    for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kNearestAway}) {
      EXPECT_TRUE(encode(format, threshold, rounding).overflow);
      EXPECT_FALSE(encode(format, std::nextafter(threshold, 0.0f), rounding).overflow);
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) uint32_t hardware_encode(float value) {
  return static_cast<uint16_t>(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT));
}
__attribute__((target("f16c"))) float hardware_decode(uint32_t code) {
  return _cvtsh_ss(static_cast<uint16_t>(code));
}

TEST(Round, Fp16IsWhatTheHardwareDoes) {
  // clang 14 cannot ask for F16C; every processor with AVX2 has it.
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "this machine may have no F16C";
  for (uint32_t code = 0; code < 65536; ++code) {
    ASSERT_EQ(bits(decode(Format::kF16, code)), bits(hardware_decode(code))) << code;
  }
  for (const float value : samples()) {
    ASSERT_EQ(encode(Format::kF16, value).bits, hardware_encode(value)) << std::hexfloat << value;
  }
  for (uint32_t word = 0x7f7fff00; word < 0x80000000 - 4099; word += 4099) {
    const auto value = std::bit_cast<float>(word);
    ASSERT_EQ(encode(Format::kF16, value).bits, hardware_encode(value)) << std::hex << word;
  }
}
#endif

// Over all possible noise words the mean is exact for normal results; here over 2^16 of them,
// equally spread, so the mean of the probability is off by 2^-16 at the most.
TEST(Round, StochasticIsUnbiased) {
  const NoiseKey key = noise_key(3, 1, 4);
  for (const Format format : kNarrow) {
    SCOPED_TRACE(spec(format).name);
    for (uint32_t trial = 0; trial < 24; ++trial) {
      // Across the normal range, and in the second half of the trials among the subnormals.
      const float unit = 1.0f + std::ldexp(static_cast<float>(noise(key, trial) >> 9), -23);
      const float value =
          trial < 12 ? unit * std::ldexp(min_normal(format), static_cast<int>(trial))
                     : unit * std::ldexp(min_normal(format), -static_cast<int>(trial) + 11);
      double sum = 0;
      constexpr uint32_t kDraws = 1 << 16;
      for (uint32_t i = 0; i < kDraws; ++i) {
        const Encoded code = encode_stochastic(format, value, i << 16 | 0x8000);
        ASSERT_FALSE(code.overflow);
        sum += static_cast<double>(decode(format, code.bits));
      }
      const double step = std::max(std::ldexp(1.0, std::ilogb(value) - spec(format).mantissa_bits),
                                   static_cast<double>(min_subnormal(format)));
      ASSERT_NEAR(sum / kDraws, static_cast<double>(value), step * 0x1p-15)
          << std::hexfloat << value;
    }
  }
}

TEST(Round, StochasticStaysBetweenNeighbours) {
  const NoiseKey key = noise_key(2, 7, 1);
  const std::vector<float> values = samples();
  for (const Format format : kNarrow) {
    const std::vector<double> grid = magnitudes(spec(format));
    uint32_t index = 0;
    for (const float value : values) {
      const Encoded got = encode_stochastic(format, value, noise(key, index++));
      const double x = std::fabs(static_cast<double>(value));
      if (x >= grid[grid.size() - 2]) continue;  // may step out of the range
      const auto above = std::upper_bound(grid.begin(), grid.end(), x);
      const double rounded = std::fabs(static_cast<double>(decode(format, got.bits)));
      ASSERT_TRUE(rounded == *above || rounded == *(above - 1)) << std::hexfloat << value;
      ASSERT_FALSE(got.overflow);
      ASSERT_EQ(got.underflow, rounded == 0 && x != 0);
    }
  }
}

TEST(Format, NamesParseBack) {
  for (size_t i = 0; i < kFormats; ++i) EXPECT_EQ(parse_format(kSpecs[i].name), Format(i));
  EXPECT_EQ(parse_format("fp64"), std::nullopt);
  EXPECT_EQ(parse_format(""), std::nullopt);
}

}  // namespace
}  // namespace tri::numeric
