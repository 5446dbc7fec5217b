#include "memory/malloc_policy.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "memory/probes.h"

namespace tri::memory {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// A pointer the compiler cannot see through; otherwise it removes malloc with its free.
void* volatile kept;

void* touched(size_t bytes) {
  kept = std::malloc(bytes);
  std::memset(kept, 1, bytes);
  return kept;
}

TEST(MallocPolicy, a_large_free_does_not_raise_the_threshold) {
  if (!pin_malloc()) GTEST_SKIP() << "this heap takes no settings";
  std::free(touched(16 * kMiB));  // unpinned, blocks up to 16 MiB would come from the heap from now
  const size_t mapped = mallinfo2().hblks;
  void* const block = touched(kMiB);
  EXPECT_EQ(mallinfo2().hblks, mapped + 1);
  std::free(block);
  EXPECT_EQ(mallinfo2().hblks, mapped);
}

TEST(MallocPolicy, freed_memory_leaves_the_process) {
  if (!pin_malloc()) GTEST_SKIP() << "this heap takes no settings";
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
