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
// first spins for a few microseconds, then offers its core to others again and again for some
// hundreds, and only then sleeps. In a virtual machine a core that sleeps is the host's to give
// away and comes back late: fifty offers instead of a thousand make steps of small layers 1.1 times
// as long. Spinning all that time would be as fast alone, but would keep from another process the
// moments that it could have had for nothing; bench/competitor shows both sides
// (docs/performance/threads.md).
constexpr int kSpins = 100;
constexpr int kOffers = 1000;
// Note [Naps]. A waiting thread sleeps in naps, and after kNaps of them for good. Falling asleep
// leaves its core idle, and an idle core looks once for threads that wait elsewhere. It may find
// one of ours, pushed aside by another process in the middle of a tile, but leaves it where it is
// if it ran a moment ago. Without a second look that tile, and with it the job, waits until the
// other process has had its turn. Beside/50 of thread_pool_bench.cpp shows what they are worth.
constexpr timespec kNap = {0, 250'000};
constexpr int kNaps = 80;
constexpr size_t kCaller = 0;                                     // its number as a worker
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();  // no tile

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
// Each thread begins with a part of the tiles that is its own, from the first one on, and takes the
// last ones of others' when it is done: neighbouring tiles, and the same tiles of the next job,
// meet in one core's cache. A part is one number, so a claim (a compare-exchange) is valid for
// whatever job is current when it succeeds, even if the thread loaded the number during an earlier
// one. The job's fields are read only after a claim, and the caller rewrites them only after every
// claimed tile has been counted in `unfinished`. Hence no thread has to check in or out of a job
// that it took no part in.
struct ThreadPool::State {
  // The tiles [first, end) that nobody has claimed: first in the low half.
  struct alignas(64) Part {
    std::atomic<uint64_t> open{0};

    void give(uint64_t first, uint64_t end) {
      open.store(end << 32 | first, std::memory_order_release);
    }
    // The first tile, or the last one; kNone if there is none left.
    uint32_t claim(bool from_the_front) {
      uint64_t seen = open.load(std::memory_order_acquire);
      while (true) {
        const auto first = static_cast<uint32_t>(seen), end = static_cast<uint32_t>(seen >> 32);
        if (first == end) return kNone;
        const uint64_t rest = from_the_front ? seen + 1 : seen - (uint64_t{1} << 32);
        if (open.compare_exchange_weak(seen, rest, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
          return from_the_front ? first : end - 1;
      }
    }
  };

  explicit State(size_t threads) : parts(threads) {}

  std::vector<Part> parts;
  alignas(64) std::atomic<uint32_t> jobs{0};  // so many were begun; what waiting workers watch
  alignas(64) std::atomic<uint32_t> unfinished{0};
  alignas(64) std::atomic<bool> busy{false};
  std::atomic<bool> stop{false};
  const TileFunction* body = nullptr;
  std::vector<std::thread> workers;

  void take_tiles(size_t worker) {
    uint32_t taken = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      Part& part = parts[(worker + i) % parts.size()];
      for (uint32_t tile; (tile = part.claim(i == 0)) != kNone; ++taken) (*body)(tile, worker);
    }
    if (taken == 0) return;
    const bool last = unfinished.fetch_sub(taken, std::memory_order_acq_rel) == taken;
    if (last && worker != kCaller) wake(unfinished);
  }

  void serve(size_t worker) {
    inside_tile = true;
    for (uint32_t seen = 0;; take_tiles(worker)) {
      wait_while(jobs, seen);
      seen = jobs.load(std::memory_order_acquire);
      if (stop.load(std::memory_order_relaxed)) return;
    }
  }

  void begin_job() {
    jobs.fetch_add(1, std::memory_order_release);
    wake(jobs);
  }

  void share(uint64_t tiles, const TileFunction& job) {
    body = &job;
    unfinished.store(static_cast<uint32_t>(tiles), std::memory_order_relaxed);
    const uint64_t count = workers.size() + 1;
    for (uint64_t i = 0; i < count; ++i) parts[i].give(tiles * i / count, tiles * (i + 1) / count);
    begin_job();
    take_tiles(kCaller);
    spin_until([this] { return unfinished.load(std::memory_order_relaxed) == 0; });
    while (const uint32_t left = unfinished.load(std::memory_order_acquire))
      wait_while(unfinished, left);
  }
};

ThreadPool::ThreadPool(size_t threads) : state_(std::make_unique<State>(threads)) {
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
  state_->stop.store(true, std::memory_order_relaxed);
  state_->begin_job();
  for (std::thread& worker : state_->workers) worker.join();
}

size_t ThreadPool::threads() const { return state_->workers.size() + 1; }

void ThreadPool::run_tiles(size_t tiles, TileFunction body) {
  TRI_CHECK(!inside_tile, "run() was called from inside a tile");
  TRI_CHECK(tiles < kNone, "tiles = {}", tiles);
  TRI_CHECK(!state_->busy.exchange(true, std::memory_order_acquire),
            "run() was called from two threads at once");
  inside_tile = true;
  if (tiles <= 1 || state_->workers.empty()) {
    for (size_t tile = 0; tile < tiles; ++tile) body(tile, 0);
  } else {
    state_->share(tiles, body);
  }
  inside_tile = false;
  state_->busy.store(false, std::memory_order_release);
}

}  // namespace tri::base
