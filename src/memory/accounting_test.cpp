#include "memory/accounting.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/draws.h"

namespace tri::memory {
namespace {

TEST(Ledger, peaks_are_exact) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    Ledger ledger;
    KindBytes held, peak;
    size_t peak_total = 0;
    for (int step = 0; step < 200; ++step) {
      const Kind kind = draw.of(kKinds);
      const auto action = draw.in(0, 20);
      if (action == 0) {
        ledger.reset_peak();
        peak = held;
        peak_total = held.total();
      } else if (action < 12) {
        const auto bytes = draw.in<size_t>(0, 1000);
        ledger.bind(kind, bytes);
        held[kind] += bytes;
      } else {
        const auto bytes = draw.in<size_t>(0, held[kind] + 1);
        ledger.unbind(kind, bytes);
        held[kind] -= bytes;
      }
      peak[kind] = std::max(peak[kind], held[kind]);
      peak_total = std::max(peak_total, held.total());
      ASSERT_TRUE(ledger.current() == held);
      ASSERT_EQ(ledger.current_bytes(), held.total());
      ASSERT_TRUE(ledger.peak() == peak);
      ASSERT_EQ(ledger.peak_bytes(), peak_total);
    }
  }
}

TEST(Ledger, counts_from_several_threads) {
  Ledger ledger;
  constexpr size_t kThreads = 4, kRounds = 2000, kBytes = 3;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (size_t round = 0; round < kRounds; ++round) {
        ledger.bind(Kind::kData, 100);
        ledger.bind(Kind::kScratch, kBytes);
        ledger.unbind(Kind::kData, 100);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.current()[Kind::kData], 0U);
  EXPECT_EQ(ledger.current()[Kind::kScratch], kThreads * kRounds * kBytes);
  EXPECT_GE(ledger.peak()[Kind::kData], 100U);
  EXPECT_LE(ledger.peak()[Kind::kData], kThreads * 100);
  EXPECT_GE(ledger.peak_bytes(), ledger.current_bytes());
}

TEST(LedgerDeath, giving_back_more_than_was_bound_aborts) {
  Ledger ledger;
  ledger.bind(Kind::kData, 1);
  EXPECT_DEATH(ledger.unbind(Kind::kData, 2), "2 bytes given back, 1 bound");
}

TEST(Kind, every_kind_has_a_name) {
  for (const Kind kind : kKinds) EXPECT_FALSE(name(kind).empty());
}

}  // namespace
}  // namespace tri::memory
