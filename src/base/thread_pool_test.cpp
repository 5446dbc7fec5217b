#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tri::base {
namespace {

TEST(ThreadPool, RunsEveryTileOnce) {
  for (const size_t threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const size_t tiles : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> runs(tiles);  // plain ints: the sanitizer would see two threads at one
      std::atomic<bool> worker_in_range = true;
      pool.run(tiles, [&](size_t tile, size_t worker) {
        ++runs[tile];
        if (worker >= threads) worker_in_range = false;
      });
      EXPECT_EQ(runs, std::vector<int>(tiles, 1));
      EXPECT_TRUE(worker_in_range);
    }
  }
}

TEST(ThreadPool, ShowsTheCallerWhatTilesWroteJobAfterJob) {
  ThreadPool pool(4);
  std::vector<uint64_t> values(5, 1);
  for (uint64_t job = 1; job <= 2000; ++job) {
    pool.run(values.size(), [&](size_t tile, size_t) { values[tile] += job; });
    ASSERT_EQ(values[job % values.size()], 1 + job * (job + 1) / 2);
  }
}

// The sum of a tile has one order, and the tiles are added in order: the same bits for any pool.
TEST(ThreadPool, ResultDoesNotDependOnThreads) {
  std::vector<float> sums[3];
  const size_t threads[] = {1, 2, 5};
  for (size_t i = 0; i < 3; ++i) {
    ThreadPool pool(threads[i]);
    sums[i].resize(37);
    pool.run(37, [&](size_t tile, size_t) {
      for (size_t n = 1; n < 100; ++n) sums[i][tile] += 1.0f / static_cast<float>(n + tile);
    });
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
}

TEST(ThreadPool, WorkersHaveNumbersOfTheirOwn) {
  ThreadPool pool(4);
  std::mutex mutex;
  std::set<std::pair<size_t, std::thread::id>> seen;
  const std::thread::id caller = std::this_thread::get_id();
  for (int job = 0; job < 50; ++job) {
    pool.run(16, [&](size_t, size_t worker) {
      std::lock_guard lock(mutex);
      seen.emplace(worker, std::this_thread::get_id());
    });
  }
  std::set<size_t> workers;
  for (const auto& [worker, thread] : seen) {
    EXPECT_TRUE(workers.insert(worker).second) << "two threads were worker " << worker;
    EXPECT_EQ(worker == 0, thread == caller);
  }
}

// Every tile waits until all four have begun, so each needs a thread of its own.
TEST(ThreadPool, WorkersWorkAtTheSameTime) {
  ThreadPool pool(4);
  for (int job = 0; job < 20; ++job) {
    std::atomic<int> begun = 0;
    pool.run(4, [&](size_t, size_t) {
      ++begun;
      while (begun < 4) std::this_thread::yield();
    });
    EXPECT_EQ(begun, 4);
  }
}

TEST(ThreadPool, WakesAfterAPause) {
  ThreadPool pool(2);
  for (const int pause_us : {0, 1, 10, 100, 1000, 5000}) {
    std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    std::atomic<int> begun = 0;
    pool.run(2, [&](size_t, size_t) {
      ++begun;
      while (begun < 2) std::this_thread::yield();
    });
    EXPECT_EQ(begun, 2);
  }
}

// The last tile keeps the caller waiting, asleep, for the worker; or the worker for the caller.
TEST(ThreadPool, WaitsForASlowTile) {
  ThreadPool pool(2);
  for (const size_t slow : {size_t{0}, size_t{1}}) {
    int done = 0;
    pool.run(2, [&](size_t tile, size_t) {
      if (tile != slow) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      done = 1;
    });
    EXPECT_EQ(done, 1);
  }
}

TEST(ThreadPool, TakesConstBodiesAndTwoPoolsInTurn) {
  ThreadPool one(2);
  ThreadPool other(3);
  std::atomic<size_t> sum = 0;
  const auto body = [&](size_t tile, size_t) { sum += tile; };
  one.run(10, body);
  other.run(10, body);
  EXPECT_EQ(sum, 90u);
}

TEST(ThreadPool, MayBeMadeAndDroppedUnused) {
  for (size_t threads = 1; threads < 20; ++threads) ThreadPool pool(threads);
}

TEST(ThreadPool, MayBeCalledFromOneThreadAfterAnother) {
  ThreadPool pool(2);
  std::vector<int> runs(100);
  const auto body = [&](size_t tile, size_t) { ++runs[tile]; };
  pool.run(runs.size(), body);
  std::thread([&] { pool.run(runs.size(), body); }).join();
  EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), 0), 200);
}

class ThreadPoolDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void run_nested(size_t threads, size_t tiles) {
  ThreadPool pool(threads);
  ThreadPool inner(1);
  pool.run(tiles, [&](size_t, size_t) { inner.run(1, [](size_t, size_t) {}); });
}

TEST_F(ThreadPoolDeathTest, NestedUseAborts) {
  EXPECT_DEATH(run_nested(2, 8), "inside a tile");
  EXPECT_DEATH(run_nested(1, 8), "inside a tile");
  EXPECT_DEATH(run_nested(2, 1), "inside a tile");
}

TEST_F(ThreadPoolDeathTest, UseFromTwoThreadsAborts) {
  EXPECT_DEATH(
      {
        ThreadPool pool(2);
        pool.run(1, [&](size_t, size_t) {
          std::thread([&] { pool.run(1, [](size_t, size_t) {}); }).join();
        });
      },
      "two threads at once");
}

TEST_F(ThreadPoolDeathTest, AnExceptionEndsTheProgram) {
  const auto throwing = [](size_t tile, size_t) {
    if (tile == 0) throw std::runtime_error("thrown in a tile");
  };
  EXPECT_DEATH(ThreadPool(1).run(1, throwing), "thrown in a tile");
  EXPECT_DEATH(ThreadPool(2).run(8, throwing), "thrown in a tile");
}

TEST_F(ThreadPoolDeathTest, APoolNeedsAThread) { EXPECT_DEATH(ThreadPool(0), "threads >= 1"); }

}  // namespace
}  // namespace tri::base
