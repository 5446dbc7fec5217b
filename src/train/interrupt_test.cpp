#include "train/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace tri::train {
namespace {

TEST(InterruptGuard, NotesTheFirstSignal) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const InterruptGuard guard;
    EXPECT_EQ(interrupt_signal(), 0);
    ::raise(signal);
    EXPECT_EQ(interrupt_signal(), signal);
  }
}

TEST(InterruptGuard, LeavesAtTheSecond) {
  const auto twice = [](int first, int second) {
    const InterruptGuard guard;
    ::raise(first);
    ::raise(second);
    ::_exit(0);
  };
  EXPECT_EXIT(twice(SIGINT, SIGINT), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(twice(SIGTERM, SIGTERM), testing::ExitedWithCode(143), "");
  EXPECT_EXIT(twice(SIGINT, SIGTERM), testing::ExitedWithCode(143), "");
}

TEST(InterruptGuard, GivesTheSignalsBack) {
  const auto after = [] {
    { const InterruptGuard guard; }
    ::raise(SIGTERM);
    ::_exit(0);
  };
  EXPECT_EXIT(after(), testing::KilledBySignal(SIGTERM), "");
}

TEST(InterruptGuard, DoesNotBreakASystemCall) {
  const auto reading = [] {
    const InterruptGuard guard;
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(1);
    const pid_t parent = ::getpid();
    if (::fork() == 0) {
      ::usleep(50'000);
      ::kill(parent, SIGTERM);
      ::usleep(50'000);
      ::_exit(::write(ends[1], "x", 1) == 1 ? 0 : 1);
    }
    char byte = 0;
    ::_exit(::read(ends[0], &byte, 1) == 1 && interrupt_signal() == SIGTERM ? 7 : 1);
  };
  EXPECT_EXIT(reading(), testing::ExitedWithCode(7), "");
}

TEST(Interrupt, ExitCodes) {
  EXPECT_EQ(interrupt_exit_code(SIGINT), 130);
  EXPECT_EQ(interrupt_exit_code(SIGTERM), 143);
}

}  // namespace
}  // namespace tri::train
