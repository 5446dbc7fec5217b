#pragma once
// Room: memory. In: a number of bytes. Out: one region at a fixed address that grows and shrinks
// between steps. Knows nothing of plans; an offset of a plan counts from data().
#include <cstddef>

#include "tri/result.h"

namespace tri::memory {

// Address space is reserved once, memory is taken by resize() alone. Pages beyond size() cannot be
// touched: a write past the plan faults at once instead of growing the process. Move-only; not
// thread-safe.
class Arena {
 public:
  // Costs address space only (it counts against RLIMIT_AS). REQUIRES: most_bytes > 0.
  static Result<Arena> reserve(size_t most_bytes);

  Arena() = default;  // holds nothing; capacity() == 0
  ~Arena();
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Growing obtains the new pages and populates them with zeros, so that no later write can be
  // refused; shrinking gives the pages back to the system before it returns (of a huge page
  // that it cuts, when the system wants them: Note [Huge pages]). Bytes below the smaller size keep
  // their values. Rounds up to whole pages. Fails with kDoesNotFit if the system refuses or bytes >
  // capacity(); the arena is then as before. A cgroup's memory.max is not refused by the kernel but
  // enforced by killing: compare with probes.h first.
  Result<void> resize(size_t bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  size_t capacity() const { return capacity_; }

 private:
  Result<void> grow(size_t bytes);
  Result<void> shrink(size_t bytes);

  std::byte* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;  // multiples of the page size
};

size_t page_bytes();

}  // namespace tri::memory
