#include "data/dataset.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

namespace tri::data {
namespace {

using ::testing::HasSubstr;

TEST(Dataset, RefusesUnknownSpecs) {
  EXPECT_EQ(open_dataset("imagenet:/x").error().code, ErrorCode::kInvalid);
  EXPECT_THAT(open_dataset("imagenet:/x").error().message, HasSubstr("cifar10:DIR"));
  EXPECT_THAT(open_dataset("cifar10").error().message, HasSubstr("write cifar10:DIR"));
  EXPECT_THAT(open_dataset("mnist:").error().message, HasSubstr("lacks its argument"));
  EXPECT_EQ(reader_help().size(), 6u);
}

TEST(Dataset, RefusesWrongSynthetics) {
  for (const char* spec : {"synthetic:1", "synthetic:x", "synthetic:10,0", "synthetic:10,32,0",
                           "synthetic:10,32,5,5", "synthetic:10,32,5x", "synthetic:10,,5"}) {
    const auto set = open_dataset(spec);
    ASSERT_FALSE(set) << spec;
    EXPECT_EQ(set.error().code, ErrorCode::kInvalid);
  }
}

TEST(Dataset, MakesSyntheticImages) {
  const auto set = open_dataset("synthetic:3,16,20");
  ASSERT_TRUE(set);
  EXPECT_EQ(set->train->info().shape, (tensor::Shape{16, 16, 3}));
  EXPECT_EQ(set->train->info().count, 20u);
  EXPECT_EQ(set->test->info().count, 4u);
  EXPECT_EQ(open_dataset("synthetic", {.pixels = 24})->train->info().shape.w, 24);
  EXPECT_EQ(open_dataset("synthetic")->train->info().count, 10000u);

  Record first, again, other, test;
  ASSERT_TRUE(set->train->read(4, first));
  ASSERT_TRUE(open_dataset("synthetic:3,16,20")->train->read(4, again));
  ASSERT_TRUE(set->train->read(7, other));
  ASSERT_TRUE(set->test->read(1, test));
  EXPECT_EQ(first.label, 1);
  EXPECT_EQ(first.pixels, again.pixels);
  EXPECT_EQ(other.label, 1);
  EXPECT_NE(first.pixels, other.pixels);
  EXPECT_EQ(test.label, 1);
  EXPECT_NE(first.pixels, test.pixels);
}

TEST(Dataset, SplitsWithoutOverlap) {
  const auto whole = open_dataset("synthetic:2,4,50");
  const auto set = open_dataset("synthetic:2,4,50", {.val_split = 0.2});
  ASSERT_TRUE(set);
  EXPECT_EQ(set->train->info().count, 40u);
  EXPECT_EQ(set->validation->info().count, 10u);
  EXPECT_EQ(&set->judge(), set->validation.get());
  std::multiset<std::vector<uint8_t>> parts, all;
  Record record;
  for (const auto& part : {set->train, set->validation}) {
    for (uint64_t i = 0; i < part->info().count; ++i) {
      ASSERT_TRUE(part->read(i, record));
      parts.insert(record.pixels);
    }
  }
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(whole->train->read(i, record));
    all.insert(record.pixels);
  }
  EXPECT_EQ(parts, all);
}

TEST(Dataset, KeepsAPartToLearnFrom) {
  const auto whole = open_dataset("synthetic:2,4,50", {.val_split = 0.2});
  const auto part = open_dataset("synthetic:2,4,50", {.val_split = 0.2, .train_count = 7});
  ASSERT_TRUE(whole && part);
  EXPECT_EQ(part->train->info().count, 7);
  EXPECT_EQ(part->validation->info().count, whole->validation->info().count);
  EXPECT_EQ(part->test->info().count, whole->test->info().count);
  EXPECT_TRUE(open_dataset("synthetic:2,4,50", {.val_split = 0.2, .train_count = 40}));
  EXPECT_FALSE(open_dataset("synthetic:2,4,50", {.val_split = 0.2, .train_count = 41}));
}

TEST(Dataset, RefusesWrongSplits) {
  for (const double share : {-0.1, 1.0, 0.001, 0.999}) {
    EXPECT_FALSE(open_dataset("synthetic:2,4,50", {.val_split = share})) << share;
  }
}

TEST(Dataset, MeasuresWhatIsNotKnown) {
  const auto set = open_dataset("synthetic:10,32,2000");
  const auto measured = measure(*set->train);
  ASSERT_TRUE(measured);
  ASSERT_EQ(measured->mean.size(), 3u);
  // 512 records, taken every 2000 / 512, against all of them.
  double sum = 0, squares = 0;
  Record record;
  for (uint64_t i = 0; i < 2000; ++i) {
    ASSERT_TRUE(set->train->read(i, record));
    for (size_t at = 0; at < record.pixels.size(); at += 3) {
      sum += record.pixels[at];
      squares += double{1} * record.pixels[at] * record.pixels[at];
    }
  }
  const double n = 2000 * 1024, mean = sum / n, deviation = std::sqrt(squares / n - mean * mean);
  // The images' own brightness is uniform over 32 levels: the mean of 512 is within 4 sigma,
  // 4 * 32 / sqrt(12 * 512) levels.
  EXPECT_NEAR(measured->mean[0] * 255, mean, 4 * 32 / std::sqrt(12.0 * 512));
  EXPECT_NEAR(measured->deviation[0] / (deviation / 255), 1, 0.05);
}

}  // namespace
}  // namespace tri::data
