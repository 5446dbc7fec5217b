#pragma once
// Room: base. A fixed set of threads that share tiles of one job at a time. The tiles are numbered
// 0..tiles-1 and cut by the caller, never by the number of threads, so a result that depends only
// on the tile is the same for any pool. Tiles are taken one by one: a thread that another process
// slows down takes fewer of them.
#include <cstddef>
#include <memory>
#include <type_traits>

namespace tri::base {

// A borrowed callable `void(size_t tile, size_t worker) noexcept`; lives as long as the run() call.
class TileFunction {
 public:
  template <class F>
  explicit TileFunction(F& body)
      : object_(const_cast<std::remove_const_t<F>*>(&body)),
        call_([](void* object, size_t tile, size_t worker) noexcept {
          (*static_cast<F*>(object))(tile, worker);
        }) {}
  void operator()(size_t tile, size_t worker) const noexcept { call_(object_, tile, worker); }

 private:
  void* object_;
  void (*call_)(void*, size_t, size_t) noexcept;
};

class ThreadPool {
 public:
  // `threads` counts the caller of run() too: a pool of one starts no thread. Where the system
  // refuses a thread the pool stays smaller; results do not depend on it. REQUIRES: threads >= 1.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const;

  // Calls body(tile, worker) once for every tile, worker < threads(), and returns when all are
  // done; what the tiles wrote is then visible to the caller. The caller works too, as worker 0,
  // and waits for tiles, not for threads: one that wakes too late has missed the job.
  // REQUIRES: not called from inside a tile of any pool, nor from two threads at once (aborts);
  // tiles < 2^32 - 1. The body must not throw: an exception ends the program. Allocates nothing.
  template <class F>
  void run(size_t tiles, F&& body) {
    run_tiles(tiles, TileFunction(body));
  }

 private:
  void run_tiles(size_t tiles, TileFunction body);
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tri::base
