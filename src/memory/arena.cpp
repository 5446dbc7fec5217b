#include "memory/arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tri::memory {
namespace {

constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

// Note [Huge pages]. A step passes over more memory than the processor's tables of small pages
// reach, and inside a virtual machine a miss costs two walks. A huge page is used only where all of
// it lies inside the accessible part: the last bytes are in small pages, and the system gives as
// many bytes as were asked for, no more. (A huge page that shrink() cuts in two is split by the
// system as soon as it wants memory; until then a control group counts the lost part too.)
constexpr size_t kHugePage = size_t{2} << 20;

size_t whole_pages(size_t bytes) {
  const size_t page = page_bytes();
  return (bytes + page - 1) / page * page;
}

// Kernels before 5.14 do not know MADV_POPULATE_WRITE; there a write to each page does the same,
// but a machine out of memory answers it with the OOM killer.
bool populate(std::byte* data, size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  do {
    if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return true;
    if (errno != EINTR && errno != EAGAIN && errno != EINVAL) return false;
  } while (errno != EINVAL);
#endif
  for (size_t at = 0; at < bytes; at += page_bytes()) {
    static_cast<volatile std::byte*>(data)[at] = std::byte{0};
  }
  return true;
}

// Fresh pages that hold no memory and refuse every access, in place of whatever was there. A new
// mapping, because it alone returns pages and the promise of them (vm.overcommit_memory = 2) both.
bool vacate(std::byte* data, size_t bytes) {
  return mmap(data, bytes, PROT_NONE, kPrivate | MAP_FIXED, -1, 0) != MAP_FAILED;
}

Unexpected refused(size_t from, size_t to, int reason) {
  return unexpected(ErrorCode::kDoesNotFit,
                    fmt::format("the system refused to resize the arena from {} to {} bytes ({}); "
                                "use a smaller batch or free memory on this machine",
                                from, to, std::strerror(reason)));
}

}  // namespace

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Result<Arena> Arena::reserve(size_t most_bytes) {
  TRI_CHECK(most_bytes > 0);
  constexpr size_t kAddressable = size_t{1} << 62;
  const size_t bytes = most_bytes < kAddressable ? whole_pages(most_bytes) : kAddressable;
  void* const data = mmap(nullptr, bytes + kHugePage, PROT_NONE, kPrivate, -1, 0);
  if (data == MAP_FAILED) {
    return unexpected(ErrorCode::kDoesNotFit,
                      fmt::format("cannot reserve {} bytes of addresses ({}); lower the memory "
                                  "ceiling or raise ulimit -v",
                                  most_bytes, std::strerror(errno)));
  }
  // What lies before the first huge page and behind the capacity goes back.
  const size_t before = -reinterpret_cast<uintptr_t>(data) % kHugePage;
  Arena arena;
  arena.data_ = static_cast<std::byte*>(data) + before;
  arena.capacity_ = bytes;
  if (before > 0) munmap(data, before);
  munmap(arena.data_ + bytes, kHugePage - before);
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, capacity_);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      capacity_(std::exchange(other.capacity_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  Arena taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(size_, taken.size_);
  std::swap(capacity_, taken.capacity_);
  return *this;
}

Result<void> Arena::resize(size_t bytes) {
  if (bytes > capacity_) {
    return unexpected(ErrorCode::kDoesNotFit,
                      fmt::format("the arena was asked for {} bytes but has addresses for {} only; "
                                  "raise the memory ceiling or use a smaller batch",
                                  bytes, capacity_));
  }
  bytes = whole_pages(bytes);
  if (bytes > size_) return grow(bytes);
  if (bytes < size_) return shrink(bytes);
  return {};
}

Result<void> Arena::grow(size_t bytes) {
  std::byte* const fresh = data_ + size_;
  const size_t added = bytes - size_;
  if (mprotect(fresh, added, PROT_READ | PROT_WRITE) != 0) {
    const int reason = errno;
    vacate(fresh, added);
    return refused(size_, bytes, reason);
  }
  // Refused only by a kernel without huge pages.
  madvise(fresh, added, MADV_HUGEPAGE);
  if (!populate(fresh, added)) {
    const int reason = errno;
    vacate(fresh, added);
    return refused(size_, bytes, reason);
  }
  size_ = bytes;
  return {};
}

Result<void> Arena::shrink(size_t bytes) {
  if (!vacate(data_ + bytes, size_ - bytes)) return refused(size_, bytes, errno);
  size_ = bytes;
  return {};
}

}  // namespace tri::memory
