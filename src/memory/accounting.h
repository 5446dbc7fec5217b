#pragma once
// Room: memory. In: bytes taken and given back, by kind. Out: how many are held now and how many
// were at the worst moment, exactly. Counts what it is told: planned buffers as they are bound, and
// heap bytes that the engine holds beside the arena. Owns no memory.
#include <array>
#include <atomic>
#include <cstddef>

#include "memory/kind.h"

namespace tri::memory {

// Thread-safe; two atomic additions and two loads a call.
class Ledger {
 public:
  void bind(Kind kind, size_t bytes) noexcept;

  // REQUIRES: so many bytes of this kind are bound.
  void unbind(Kind kind, size_t bytes) noexcept;

  KindBytes current() const noexcept;
  size_t current_bytes() const noexcept { return total_.current.load(std::memory_order_relaxed); }

  // The most since the last reset_peak(). Kinds peak at different moments: peak().total() may
  // exceed peak_bytes(), which is the peak of the sum.
  KindBytes peak() const noexcept;
  size_t peak_bytes() const noexcept { return total_.peak.load(std::memory_order_relaxed); }

  // Peaks count again from what is held now. REQUIRES: no bind() at the same time, so between
  // steps.
  void reset_peak() noexcept;

 private:
  struct Account {
    std::atomic<size_t> current{0}, peak{0};
    void add(size_t bytes) noexcept;
    void subtract(size_t bytes) noexcept;
  };
  Account& account(Kind kind) noexcept { return accounts_[static_cast<size_t>(kind)]; }

  std::array<Account, kKinds.size()> accounts_;
  Account total_;
};

}  // namespace tri::memory
