#include "memory/accounting.h"

#include "base/check.h"

namespace tri::memory {

// Each addition yields one value of the running sum, and every rise of the sum is an addition: the
// largest yield is the exact peak, whatever the threads do.
void Ledger::Account::add(size_t bytes) noexcept {
  const size_t now = current.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  size_t most = peak.load(std::memory_order_relaxed);
  while (most < now && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

void Ledger::Account::subtract(size_t bytes) noexcept {
  const size_t before = current.fetch_sub(bytes, std::memory_order_relaxed);
  TRI_CHECK(before >= bytes, "{} bytes given back, {} bound", bytes, before);
}

void Ledger::bind(Kind kind, size_t bytes) noexcept {
  account(kind).add(bytes);
  total_.add(bytes);
}

void Ledger::unbind(Kind kind, size_t bytes) noexcept {
  account(kind).subtract(bytes);
  total_.subtract(bytes);
}

KindBytes Ledger::current() const noexcept {
  KindBytes held;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    held.bytes[i] = accounts_[i].current.load(std::memory_order_relaxed);
  }
  return held;
}

KindBytes Ledger::peak() const noexcept {
  KindBytes most;
  for (size_t i = 0; i < kKinds.size(); ++i) {
    most.bytes[i] = accounts_[i].peak.load(std::memory_order_relaxed);
  }
  return most;
}

void Ledger::reset_peak() noexcept {
  for (Account& account : accounts_) account.peak.store(account.current.load());
  total_.peak.store(total_.current.load());
}

}  // namespace tri::memory
