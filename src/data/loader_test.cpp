#include "data/loader.h"

#include <gmock/gmock.h>

#include <chrono>

#include "data/dataset.h"

namespace tri::data {
namespace {

constexpr uint64_t kCount = 37;
constexpr tensor::Shape kShape{4, 4, 1};

// Record i is filled with i. Slow now and then, so that readers finish out of order.
class NumberedSource final : public Source {
 public:
  explicit NumberedSource(uint64_t broken = UINT64_MAX)
      : Source({.name = "numbered",
                .class_names = std::vector<std::string>(kCount, "n"),
                .shape = kShape,
                .count = kCount}),
        broken_(broken) {}
  Result<void> read(uint64_t index, Record& record) const override {
    if (index % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    if (index == broken_) return unexpected(ErrorCode::kFailed, "record is broken");
    record.label = static_cast<int32_t>(index);
    record.pixels.assign(16, static_cast<uint8_t>(index));
    return {};
  }

 private:
  uint64_t broken_;
};

struct Taken {
  std::vector<float> x;
  std::vector<int32_t> labels;
  std::vector<uint64_t> ids;
  bool operator==(const Taken&) const = default;
};

LoaderOptions options(size_t capacity, size_t readers = 1) {
  return {.shape = kShape,
          .normalisation = {{0.0f}, {1.0f / 255}},
          .augment = {.crop = 1, .flip = true},
          .seed = 3,
          .capacity = capacity,
          .readers = readers};
}

// Owns what the engine's arena would hold.
struct Memory {
  explicit Memory(size_t capacity)
      : x(capacity * static_cast<size_t>(kShape.elements())),
        labels(capacity),
        ids(capacity),
        ring(capacity * 16) {}
  std::vector<float> x;
  std::vector<int32_t> labels;
  std::vector<uint64_t> ids;
  std::vector<std::byte> ring;
  BatchSlots slots{x, labels, ids};
};

void append(Taken& run, const Batch& batch) {
  run.x.insert(run.x.end(), batch.x.begin(), batch.x.end());
  run.labels.insert(run.labels.end(), batch.labels.begin(), batch.labels.end());
  run.ids.insert(run.ids.end(), batch.ids.begin(), batch.ids.end());
}

Taken take_all(const LoaderOptions& settings, const std::vector<size_t>& sizes, size_t threads) {
  Memory memory(settings.capacity);
  base::ThreadPool pool(threads);
  Loader loader(std::make_shared<NumberedSource>(), SampleOrder::shuffled(kCount, 11), settings,
                memory.ring, pool);
  Taken run;
  for (const size_t size : sizes) {
    const uint64_t before = loader.position();
    const auto batch = loader.take(size, memory.slots);
    TRI_CHECK(batch.has_value() && batch->size() == size && batch->first == before);
    append(run, *batch);
  }
  return run;
}

TEST(Loader, IsTheSameForAnyThreadsAndBatches) {
  const Taken plain = take_all(options(100), {100}, 1);  // straddles three epochs
  EXPECT_EQ(take_all(options(10), std::vector<size_t>(10, 10), 1), plain);
  EXPECT_EQ(take_all(options(32, 3), {32, 1, 7, 32, 28}, 2), plain);
  EXPECT_EQ(take_all(options(1), std::vector<size_t>(100, 1), 1), plain);

  const auto order = SampleOrder::shuffled(kCount, 11);
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(plain.ids[i], sample_id(order.at(i)));
    EXPECT_EQ(plain.labels[i], static_cast<int32_t>(order.at(i).index));
    EXPECT_NEAR(plain.x[16 * i + 5], static_cast<float>(order.at(i).index), 1e-4);
  }
}

TEST(Loader, ContinuesFromAPosition) {
  const Taken plain = take_all(options(20), std::vector<size_t>(5, 20), 1);
  LoaderOptions later = options(20);
  later.position = 60;
  const Taken rest = take_all(later, {20, 20}, 1);
  EXPECT_TRUE(std::equal(rest.x.begin(), rest.x.end(), plain.x.begin() + 60 * 16));
  EXPECT_TRUE(std::equal(rest.ids.begin(), rest.ids.end(), plain.ids.begin() + 60));
}

TEST(Loader, EndsWithAShortBatch) {
  Memory memory(16);
  base::ThreadPool pool(2);
  LoaderOptions settings = options(16);
  settings.augment = {};
  Loader loader(std::make_shared<NumberedSource>(), SampleOrder::once(kCount), settings,
                memory.ring, pool);
  Taken run;
  for (const size_t size : {16u, 16u, 5u, 0u, 0u}) {
    const auto batch = loader.take(16, memory.slots);
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->size(), size);
    append(run, *batch);
  }
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(run.labels[i], static_cast<int32_t>(i));
}

TEST(Loader, ReturnsTheErrorOfItsBatch) {
  Memory memory(8);
  base::ThreadPool pool(1);
  Loader loader(std::make_shared<NumberedSource>(20), SampleOrder::once(kCount), options(8, 2),
                memory.ring, pool);
  ASSERT_TRUE(loader.take(8, memory.slots));
  ASSERT_TRUE(loader.take(8, memory.slots));
  ASSERT_TRUE(loader.take(4, memory.slots));  // up to the broken one
  for (int again = 0; again < 2; ++again) {
    const auto batch = loader.take(8, memory.slots);
    ASSERT_FALSE(batch);
    EXPECT_EQ(batch.error().message, "record is broken");
  }
}

TEST(Loader, StopsInTheMiddle) {
  Memory memory(8);
  base::ThreadPool pool(1);
  for (int i = 0; i < 20; ++i) {
    Loader loader(std::make_shared<NumberedSource>(), SampleOrder::shuffled(kCount, 1),
                  options(8, 2), memory.ring, pool);
    if (i % 2 == 0) {
      ASSERT_TRUE(loader.take(3, memory.slots));
    }
  }
}

}  // namespace
}  // namespace tri::data
