#include "ops/rows/weights.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "numeric/round.h"
#include "numeric/split.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

using numeric::Format;
using Remainder = Weights::Remainder;

// Longer than any vector and no multiple of one.
constexpr size_t kCount = 1237;

// Weights as they occur, and the codes around which merging carries.
std::vector<float> draws() {
  base::Stream stream(7, base::Purpose::kInit);
  std::vector<float> values(kCount);
  for (float& v : values) v = static_cast<float>(stream.normal_pair().first) * 0.05f;
  const float corners[] = {0.0f,           -0.0f,           1.0f,     -1.0f,
                           0x1p-126f,      0x1p-149f,       0x1p-14f, 0x1p-24f,
                           0x1.fffffep-3f, -0x1.fffffep-3f, 65504.0f, -0x1p-30f};
  std::copy(std::begin(corners), std::end(corners), values.begin() + 100);
  return values;
}

std::vector<uint32_t> bits(const std::vector<float>& values) {
  std::vector<uint32_t> all;
  for (const float value : values) all.push_back(std::bit_cast<uint32_t>(value));
  return all;
}

class LoadWeights : public simd::TargetTest {
 protected:
  // Every odd range must be what the scalar merge says.
  static void expect_ranges(const Weights& weights, const std::vector<float>& want) {
    for (const size_t begin : {size_t{0}, size_t{1}, size_t{32}, size_t{97}}) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{64}, kCount - begin}) {
        std::vector<float> got(count + 1, 42.0f);
        load_weights(weights, static_cast<int64_t>(begin), static_cast<int64_t>(count), got.data());
        EXPECT_EQ(got.back(), 42.0f) << "wrote behind the end";
        got.pop_back();
        const auto first = want.begin() + static_cast<std::ptrdiff_t>(begin);
        EXPECT_EQ(bits(got), bits({first, first + static_cast<std::ptrdiff_t>(count)}));
      }
    }
  }
};

TEST_P(LoadWeights, merges_split_weights_where_the_layer_works_in_fp32) {
  const std::vector<float> values = draws();
  std::vector<uint16_t> high(kCount);
  std::vector<int8_t> low8(kCount);
  std::vector<int16_t> low16(kCount);
  std::vector<float> merged(kCount), upper(kCount);
  struct Scheme {
    Remainder kind;
    Format format;
  };
  for (const auto& [kind, format] :
       {Scheme{Remainder::kBf16x8, Format::kBf16}, Scheme{Remainder::kBf16x16, Format::kBf16},
        Scheme{Remainder::kF16x8, Format::kF16}}) {
    for (size_t i = 0; i < kCount; ++i) {
      if (kind == Remainder::kBf16x16) {
        const numeric::Split16 parts = numeric::split_bf16_16(values[i]);
        high[i] = parts.high;
        low16[i] = parts.low;
        merged[i] = numeric::merge_bf16_16(parts);
      } else {
        const bool bf16 = kind == Remainder::kBf16x8;
        const numeric::Split8 parts =
            bf16 ? numeric::split_bf16_8(values[i]) : numeric::split_f16_8(values[i]);
        high[i] = parts.high;
        low8[i] = parts.low;
        merged[i] = bf16 ? numeric::merge_bf16_8(parts) : numeric::merge_f16_8(parts);
      }
      upper[i] = numeric::decode(format, high[i]);
    }
    Weights weights;
    weights.data = high.data();
    weights.format = format;
    weights.remainder =
        kind == Remainder::kBf16x16 ? static_cast<const void*>(low16.data()) : low8.data();
    weights.remainder_kind = kind;
    weights.working = Format::kF32;
    ASSERT_FALSE(weights.direct());
    expect_ranges(weights, merged);
    EXPECT_NE(bits(merged), bits(upper)) << "the remainder says nothing";
    weights.working = format;  // a 16-bit layer reads the working weight alone
    expect_ranges(weights, upper);
  }
}

TEST_P(LoadWeights, rounds_to_the_working_format) {
  const std::vector<float> values = draws();
  const auto rounded = [](Format format, float v) {
    return numeric::decode(format, numeric::encode(format, v).bits);
  };
  for (const Format stored : {Format::kF32, Format::kBf16, Format::kF16}) {
    std::vector<std::byte> codes(kCount * numeric::storage_bytes(stored));
    std::vector<float> held(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const uint32_t code = stored == Format::kF32 ? std::bit_cast<uint32_t>(values[i])
                                                   : numeric::encode(stored, values[i]).bits;
      std::memcpy(codes.data() + i * numeric::storage_bytes(stored), &code,
                  numeric::storage_bytes(stored));
      held[i] = stored == Format::kF32 ? values[i] : numeric::decode(stored, code);
    }
    for (const Format working : {Format::kF32, Format::kBf16, Format::kF16, Format::kF16e6,
                                 Format::kF8e4b4, Format::kF8e5}) {
      std::vector<float> want(kCount);
      for (size_t i = 0; i < kCount; ++i)
        want[i] = working == Format::kF32 ? held[i] : rounded(working, held[i]);
      Weights weights;
      weights.data = codes.data();
      weights.format = stored;
      weights.working = working;
      expect_ranges(weights, want);
    }
  }
}

TRI_FOR_EACH_TARGET(LoadWeights);

}  // namespace
}  // namespace tri::ops
