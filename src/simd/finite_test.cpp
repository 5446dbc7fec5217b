#include "simd/finite.h"

#include <gtest/gtest.h>

#include <cfloat>
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

}  // namespace
}  // namespace tri::simd
