#include "train/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/check.h"

namespace tri::train {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM};

// A handler may touch lock-free atomics and little else.
std::atomic<int> g_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

struct sigaction g_old[std::size(kSignals)], g_old_pipe;
bool g_guarded = false;

void on_signal(int signal) {
  int none = 0;
  if (!g_signal.compare_exchange_strong(none, signal)) ::_exit(interrupt_exit_code(signal));
}

}  // namespace

InterruptGuard::InterruptGuard() {
  TRI_CHECK(!g_guarded, "signals are handled already");
  g_guarded = true;
  g_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes go on: the step is to be finished
  ::sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kSignals); ++i) {
    TRI_CHECK(::sigaction(kSignals[i], &action, &g_old[i]) == 0, "signal {}", kSignals[i]);
  }
  action.sa_handler = SIG_IGN;
  TRI_CHECK(::sigaction(SIGPIPE, &action, &g_old_pipe) == 0);
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &g_old[i], nullptr);
  ::sigaction(SIGPIPE, &g_old_pipe, nullptr);
  g_guarded = false;
}

int interrupt_signal() { return g_signal; }

}  // namespace tri::train
