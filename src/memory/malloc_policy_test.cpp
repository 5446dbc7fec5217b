#include "memory/malloc_policy.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/mebibyte.h"
#include "memory/probes.h"

namespace tri::memory {
namespace {

using base::kMiB;

// Sanitizers bring a heap of their own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// A pointer the compiler cannot see through; otherwise it removes malloc with its free.
void* volatile kept;

void* touched(size_t bytes) {
  kept = std::malloc(bytes);
  std::memset(kept, 1, bytes);
  return kept;
}

TEST(MallocPolicy, a_large_free_does_not_raise_the_threshold) {
  if (kSanitized || !pin_malloc()) GTEST_SKIP() << "not the heap of the C library";
  std::free(touched(16 * kMiB));  // unpinned, blocks up to 16 MiB would come from the heap from now
  const size_t mapped = mallinfo2().hblks;
  void* const block = touched(kMiB);
  EXPECT_EQ(mallinfo2().hblks, mapped + 1);
  std::free(block);
  EXPECT_EQ(mallinfo2().hblks, mapped);
}

TEST(MallocPolicy, freed_memory_leaves_the_process) {
  if (kSanitized || !pin_malloc()) GTEST_SKIP() << "not the heap of the C library";
  const size_t before = Probes().resident().bytes.value();
  std::vector<void*> blocks;
  for (int i = 0; i < 1024; ++i) blocks.push_back(touched(32 << 10));  // 32 MiB on the heap
  void* const last = touched(64);  // pins the top: trimming alone could not return the rest
  for (void* const block : blocks) std::free(block);
  return_free_memory();
  EXPECT_LE(Probes().resident().bytes.value(), before + 2 * kMiB);
  std::free(last);
}

}  // namespace
}  // namespace tri::memory
