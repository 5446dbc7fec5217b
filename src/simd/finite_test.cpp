#include "simd/finite.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "simd/target_fixture.h"

namespace tri::simd {
namespace {

class AllFinite : public TargetTest {};

TEST_P(AllFinite, finds_the_one_value_that_is_no_number_wherever_it_lies) {
  for (size_t n = 0; n <= 67; ++n) {
    std::vector<float> values(n, -FLT_MAX);
    if (n > 1) values[n / 2] = -0.0f;
    EXPECT_TRUE(all_finite(values.data(), n)) << n;
    for (size_t bad = 0; bad < n; ++bad)
      for (const float value :
           {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
            std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> with = values;
        with[bad] = value;
        EXPECT_FALSE(all_finite(with.data(), n)) << n << " " << bad << " " << value;
      }
  }
}

TRI_FOR_EACH_TARGET(AllFinite);

class LargestMagnitude : public TargetTest {};

TEST_P(LargestMagnitude, is_found_wherever_it_lies_and_whatever_its_sign) {
  for (size_t n = 1; n <= 67; ++n)
    for (size_t at = 0; at < n; ++at)
      for (const float value : {3.5f, -3.5f, -std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> values(n, -2.0f);
        values[at] = value;
        EXPECT_EQ(largest_magnitude(values.data(), n), std::bit_cast<uint32_t>(std::fabs(value)));
      }
  EXPECT_EQ(largest_magnitude(nullptr, 0), 0U);
}

TRI_FOR_EACH_TARGET(LargestMagnitude);

}  // namespace
}  // namespace tri::simd
