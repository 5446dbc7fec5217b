#pragma once
// Room: base. A fixed set of threads that share tiles of one job at a time. The tiles are numbered
// 0..tiles-1 and cut by the caller, never by the number of threads, so a result that depends only
// on the tile is the same for any pool. Tiles are taken one by one: a thread that another process
// slows down takes fewer of them.
#include <cstddef>
#include <memory>

namespace tri::base {

// A borrowed callable `void(size_t tile, size_t worker) noexcept`; lives as long as the run() call.
class TileFunction {
 public:
  template <class F>
  TileFunction(F& body)  // NOLINT: implicit on purpose, so that a lambda can be passed
      : object_(&body), call_([](void* object, size_t tile, size_t worker) {
          (*static_cast<F*>(object))(tile, worker);
        }) {}
  void operator()(size_t tile, size_t worker) const { call_(object_, tile, worker); }

 private:
  void* object_;
  void (*call_)(void*, size_t, size_t);
};

class ThreadPool {
 public:
  // `threads` counts the caller of run() too: a pool of one starts no thread. REQUIRES: >= 1.
  explicit ThreadPool(size_t threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  size_t threads() const;

  // Calls body(tile, worker) once for every tile, worker < threads(), and returns when all are
  // done; what the tiles wrote is then visible to the caller. The caller works too, as worker 0.
  // REQUIRES: not called from inside a tile (nested use aborts), nor from two threads at once.
  // The body must not throw: an exception ends the program.
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
