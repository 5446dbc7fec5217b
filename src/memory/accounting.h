#pragma once
// Room: memory. In: bytes taken and given back, by kind. Out: how many are held now and how many
// were at the worst moment, exactly. Counts what it is told: planned buffers as they are bound, and
// heap bytes that the engine holds beside the arena. Owns no memory.
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>

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

// Holds bytes bound for as long as it lives. The ledger must outlive it.
class Booking {
 public:
  Booking() = default;  // books nothing
  Booking(Ledger& ledger, Kind kind, size_t bytes) noexcept
      : ledger_(&ledger), kind_(kind), bytes_(bytes) {
    ledger.bind(kind, bytes);
  }
  ~Booking() {
    if (ledger_ != nullptr) ledger_->unbind(kind_, bytes_);
  }
  Booking(Booking&& other) noexcept
      : ledger_(std::exchange(other.ledger_, nullptr)), kind_(other.kind_), bytes_(other.bytes_) {}
  Booking& operator=(Booking&& other) noexcept {
    Booking taken(std::move(other));
    std::swap(ledger_, taken.ledger_);
    std::swap(kind_, taken.kind_);
    std::swap(bytes_, taken.bytes_);
    return *this;
  }

 private:
  Ledger* ledger_ = nullptr;
  Kind kind_ = Kind::kScratch;
  size_t bytes_ = 0;
};

}  // namespace tri::memory
