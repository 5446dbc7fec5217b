#include "base/thread_pool.h"

#include <hwy/cache_control.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "base/check.h"

namespace tri::base {
namespace {

// Note [Waiting]. Most waits are short, and waking a thread costs more than they last. So a thread
// first spins for a few microseconds, then offers its core to others again and again for some tens,
// and only then sleeps. Spinning all that time would be as fast alone, but would keep from another
// process the moments that it could have had for nothing; bench/competitor shows both sides
// (docs/performance.md).
constexpr int kSpins = 100;
constexpr int kOffers = 200;
// Note [Naps]. A waiting thread sleeps in naps, and after kNaps of them for good. Falling asleep
// leaves its core idle, and an idle core looks once for threads that wait elsewhere. It may find
// one of ours, pushed aside by another process in the middle of a tile, but leaves it where it is
// if it ran a moment ago. Without a second look that tile, and with it the job, waits until the
// other process has had its turn. Beside/50 of thread_pool_bench.cpp shows what they are worth.
constexpr timespec kNap = {0, 250'000};
constexpr int kNaps = 80;
constexpr size_t kCaller = 0;  // its number as a worker
constexpr uint32_t kStop = std::numeric_limits<uint32_t>::max();

thread_local bool inside_tile = false;

// Gives up after a while, see Note [Waiting].
template <class Condition>
void spin_until(Condition condition) {
  for (int i = 0; i < kSpins; ++i) {
    if (condition()) return;
    hwy::Pause();
  }
  for (int i = 0; i < kOffers && !condition(); ++i) sched_yield();
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* most) {
  static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(word) == sizeof(value));
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, most, nullptr, 0);
}

// Returns when `word` is no longer `value`, which somebody then says with wake().
void wait_while(std::atomic<uint32_t>& word, uint32_t value) {
  spin_until([&] { return word.load(std::memory_order_relaxed) != value; });
  for (int nap = 0; word.load(std::memory_order_acquire) == value; ++nap)
    futex(word, FUTEX_WAIT_PRIVATE, value, nap < kNaps ? &kNap : nullptr);
}

void wake(std::atomic<uint32_t>& word) {
  futex(word, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr);
}

}  // namespace

// Note [Claiming tiles]
// `unclaimed` counts down, so a claim (a compare-exchange of n to n - 1) is valid for whatever job
// is current when it succeeds, even if the thread loaded n during an earlier one. The job's fields
// are read only after a claim, and the caller rewrites them only after every claimed tile has been
// counted in `unfinished`. Hence no thread has to check in or out of a job that it took no part in.
struct ThreadPool::State {
  alignas(64) std::atomic<uint32_t> unclaimed{0};  // or kStop
  alignas(64) std::atomic<uint32_t> unfinished{0};
  alignas(64) std::atomic<bool> busy{false};
  const TileFunction* body = nullptr;
  uint32_t tiles = 0;
  std::vector<std::thread> workers;

  void take_tiles(size_t worker) {
    uint32_t taken = 0;
    uint32_t left = unclaimed.load(std::memory_order_acquire);
    while (left != 0 && left != kStop) {
      if (!unclaimed.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel,
                                           std::memory_order_acquire)) {
        continue;
      }
      (*body)(tiles - left, worker);
      ++taken;
      left = unclaimed.load(std::memory_order_acquire);
    }
    if (taken == 0) return;
    const bool last = unfinished.fetch_sub(taken, std::memory_order_acq_rel) == taken;
    if (last && worker != kCaller) wake(unfinished);
  }

  void serve(size_t worker) {
    inside_tile = true;
    while (true) {
      wait_while(unclaimed, 0);
      if (unclaimed.load(std::memory_order_acquire) == kStop) return;
      take_tiles(worker);
    }
  }

  void share(uint32_t count, const TileFunction& job) {
    body = &job;
    tiles = count;
    unfinished.store(count, std::memory_order_relaxed);
    unclaimed.store(count, std::memory_order_release);
    wake(unclaimed);
    take_tiles(kCaller);
    spin_until([this] { return unfinished.load(std::memory_order_relaxed) == 0; });
    while (const uint32_t left = unfinished.load(std::memory_order_acquire))
      wait_while(unfinished, left);
  }
};

ThreadPool::ThreadPool(size_t threads) : state_(std::make_unique<State>()) {
  TRI_CHECK(threads >= 1);
  state_->workers.reserve(threads - 1);
  try {
    for (size_t worker = 1; worker < threads; ++worker) {
      state_->workers.emplace_back([state = state_.get(), worker] { state->serve(worker); });
    }
  } catch (const std::system_error&) {
  }
}

ThreadPool::~ThreadPool() {
  state_->unclaimed.store(kStop, std::memory_order_release);
  wake(state_->unclaimed);
  for (std::thread& worker : state_->workers) worker.join();
}

size_t ThreadPool::threads() const { return state_->workers.size() + 1; }

void ThreadPool::run_tiles(size_t tiles, TileFunction body) {
  TRI_CHECK(!inside_tile, "run() was called from inside a tile");
  TRI_CHECK(tiles < kStop, "tiles = {}", tiles);
  TRI_CHECK(!state_->busy.exchange(true, std::memory_order_acquire),
            "run() was called from two threads at once");
  inside_tile = true;
  if (tiles <= 1 || state_->workers.empty()) {
    for (size_t tile = 0; tile < tiles; ++tile) body(tile, 0);
  } else {
    state_->share(static_cast<uint32_t>(tiles), body);
  }
  inside_tile = false;
  state_->busy.store(false, std::memory_order_release);
}

}  // namespace tri::base
