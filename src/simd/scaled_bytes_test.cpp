#include "simd/scaled_bytes.h"

#include <gtest/gtest.h>

#include <vector>

#include "simd/target_fixture.h"

namespace tri::simd {
namespace {

class ScaleBytes : public TargetTest {};

TEST_P(ScaleBytes, multiplies_then_adds_with_two_roundings) {
  for (const size_t n : {0u, 1u, 15u, 16u, 17u, 96u, 255u, 256u}) {
    std::vector<uint8_t> bytes(n);
    std::vector<float> scale(n), shift(n), got(n + 1, -1.0f);
    for (size_t i = 0; i < n; ++i) {
      bytes[i] = static_cast<uint8_t>(255 - i);
      scale[i] = 1.0f / static_cast<float>(3 + i % 3);
      shift[i] = -0.37f * static_cast<float>(1 + i % 3);
    }
    scale_bytes(bytes.data(), n, scale.data(), shift.data(), got.data());
    for (size_t i = 0; i < n; ++i) {
      const float product = static_cast<float>(bytes[i]) * scale[i];
      EXPECT_EQ(got[i], product + shift[i]) << i << " of " << n;
    }
    EXPECT_EQ(got[n], -1.0f);  // not a number more
  }
}

TRI_FOR_EACH_TARGET(ScaleBytes);

}  // namespace
}  // namespace tri::simd
