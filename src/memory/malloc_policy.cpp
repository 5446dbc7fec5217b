#include "memory/malloc_policy.h"

#include <cstdlib>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tri::memory {

#ifdef __GLIBC__

bool pin_malloc() noexcept {
  constexpr int kThreshold = 128 << 10;  // glibc's own first value
  const bool mapped = mallopt(M_MMAP_THRESHOLD, kThreshold) == 1;
  const bool trimmed = mallopt(M_TRIM_THRESHOLD, kThreshold) == 1;
  const bool one_heap = mallopt(M_ARENA_MAX, 1) == 1;
  return mapped && trimmed && one_heap;
}

void return_free_memory() noexcept { malloc_trim(0); }

#else

bool pin_malloc() noexcept { return false; }
void return_free_memory() noexcept {}

#endif

}  // namespace tri::memory
