#pragma once
// Room: base. Time for reports only: no decision of a run may read it, or resuming would not
// repeat the run.
#include <chrono>
#include <cstdint>

namespace tri::base {

// Monotonic; its zero has no meaning.
inline int64_t now_ns() {
  using std::chrono::steady_clock;
  return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
}

class Stopwatch {
 public:
  int64_t elapsed_ns() const { return now_ns() - start_ns_; }
  double seconds() const { return static_cast<double>(elapsed_ns()) * 1e-9; }
  void restart() { start_ns_ = now_ns(); }

 private:
  int64_t start_ns_ = now_ns();
};

}  // namespace tri::base
