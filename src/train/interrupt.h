#pragma once
// Room: train. SIGINT and SIGTERM as requests. The first is only noted: the loop asks between
// steps, saves and leaves. The second ends the process at once, with the same exit code; what is on
// disk is whole at every moment, so nothing is lost but the time since the last checkpoint.

namespace tri::train {

// Handles both signals while it lives; then the old handlers are back. A closed pipe or terminal at
// the other end of standard output is no reason to stop: SIGPIPE is ignored meanwhile. REQUIRES:
// one at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// The signal that asked to stop since the guard was made, or 0. Any thread may ask.
int interrupt_signal();

// As shells report it: 130 for SIGINT, 143 for SIGTERM.
inline int interrupt_exit_code(int signal) { return 128 + signal; }

}  // namespace tri::train
