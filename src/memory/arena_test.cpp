#include "memory/arena.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <utility>

#include "base/mebibyte.h"
#include "memory/probes.h"
#include "memory/system_files.h"

namespace tri::memory {
namespace {

using testing::HasSubstr;

using base::kMiB;

size_t resident() { return Probes().resident().bytes.value(); }

// Whether the byte may be read, asked of the kernel: it refuses with EFAULT where we would fault.
bool readable(const std::byte* at) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const bool yes = write(ends[1], at, 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return yes;
}

TEST(Arena, takes_memory_when_it_grows_and_gives_it_back_when_it_shrinks) {
  Result<Arena> arena = Arena::reserve(256 * kMiB);
  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->size(), 0U);
  EXPECT_EQ(arena->capacity(), 256 * kMiB);
  const size_t before = resident();

  // A sanitizer keeps shadow pages of what it sees mapped.
  constexpr size_t kSlack = 16 * kMiB;
  ASSERT_TRUE(arena->resize(64 * kMiB).has_value());
  const size_t grown = resident();
  EXPECT_GE(grown + kSlack, before + 64 * kMiB) << "populated before anything is written";
  ASSERT_TRUE(arena->resize(8 * kMiB).has_value());
  const size_t shrunk = resident();
  EXPECT_LE(shrunk, before + 8 * kMiB + kSlack);
  EXPECT_EQ(arena->size(), 8 * kMiB);
}

TEST(Arena, keeps_bytes_and_address_and_zeroes_new_pages) {
  Arena arena = std::move(Arena::reserve(16 * kMiB)).value();
  std::byte* const address = arena.data();
  ASSERT_TRUE(arena.resize(2 * kMiB).has_value());
  arena.data()[0] = std::byte{1};
  arena.data()[2 * kMiB - 1] = std::byte{2};
  ASSERT_TRUE(arena.resize(16 * kMiB).has_value());
  EXPECT_EQ(arena.data(), address);
  EXPECT_EQ(arena.data()[0], std::byte{1});
  EXPECT_EQ(arena.data()[2 * kMiB - 1], std::byte{2});
  ASSERT_TRUE(arena.resize(kMiB).has_value());
  ASSERT_TRUE(arena.resize(2 * kMiB).has_value());
  EXPECT_EQ(arena.data()[0], std::byte{1});
  EXPECT_EQ(arena.data()[2 * kMiB - 1], std::byte{0});
}

TEST(Arena, refuses_access_beyond_its_size) {
  Arena arena = std::move(Arena::reserve(4 * kMiB)).value();
  EXPECT_FALSE(readable(arena.data()));
  ASSERT_TRUE(arena.resize(1).has_value());
  EXPECT_EQ(arena.size(), page_bytes());
  EXPECT_TRUE(readable(arena.data() + page_bytes() - 1));
  EXPECT_FALSE(readable(arena.data() + page_bytes()));
  ASSERT_TRUE(arena.resize(0).has_value());
  EXPECT_FALSE(readable(arena.data()));
}

// What /proc/self/smaps says of the mapping that begins here.
size_t mapped(const Arena& arena, const std::string& field) {
  const std::string maps = read_text("/proc/self/smaps").value();
  const size_t at = maps.find(fmt::format("{:x}-", reinterpret_cast<uintptr_t>(arena.data())));
  return at == std::string::npos ? 0 : kilobyte_field(maps.substr(at), field).value();
}

TEST(Arena, takes_no_byte_more_for_huge_pages) {
  Arena arena = std::move(Arena::reserve(16 * kMiB)).value();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % (2 * kMiB), 0u);
  for (const size_t bytes : {5 * kMiB + page_bytes(), 12 * kMiB + page_bytes(), 3 * kMiB}) {
    ASSERT_TRUE(arena.resize(bytes).has_value());
    EXPECT_EQ(mapped(arena, "Size"), bytes);
    EXPECT_EQ(mapped(arena, "Rss"), bytes);
    EXPECT_LE(mapped(arena, "AnonHugePages"), bytes);
  }
}

TEST(Arena, reports_what_it_cannot_have) {
  const Result<Arena> boundless = Arena::reserve(~size_t{0});
  ASSERT_FALSE(boundless.has_value());
  EXPECT_EQ(boundless.error().code, ErrorCode::kDoesNotFit);

  Arena arena = std::move(Arena::reserve(kMiB)).value();
  const Result<void> larger = arena.resize(kMiB + 1);
  ASSERT_FALSE(larger.has_value());
  EXPECT_EQ(larger.error().code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(larger.error().message, HasSubstr("1048577 bytes"));
}

// RLIMIT_DATA counts writable private pages, so it makes the kernel refuse as a full machine would.
TEST(Arena, is_as_before_when_the_system_refuses) {
  Arena arena = std::move(Arena::reserve(512 * kMiB)).value();
  ASSERT_TRUE(arena.resize(kMiB).has_value());
  arena.data()[7] = std::byte{7};

  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &old), 0);
  const std::string status = read_text("/proc/self/status").value();
  rlimit tight = old;
  tight.rlim_cur = kilobyte_field(status, "VmData").value() + 64 * kMiB;
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &tight), 0);
  const Result<void> refused = arena.resize(512 * kMiB);
  const Result<void> smaller = arena.resize(2 * kMiB);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &old), 0);

  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(refused.error().message, HasSubstr("from 1048576 to 536870912 bytes"));
  EXPECT_TRUE(smaller.has_value());
  EXPECT_EQ(arena.size(), 2 * kMiB);
  EXPECT_EQ(arena.data()[7], std::byte{7});
  EXPECT_FALSE(readable(arena.data() + 2 * kMiB));
}

TEST(Arena, moves) {
  Arena first = std::move(Arena::reserve(kMiB)).value();
  ASSERT_TRUE(first.resize(page_bytes()).has_value());
  std::byte* const address = first.data();
  Arena second = std::move(first);
  EXPECT_EQ(second.data(), address);
  EXPECT_EQ(second.size(), page_bytes());
  Arena third;
  EXPECT_EQ(third.capacity(), 0U);
  third = std::move(second);
  EXPECT_EQ(third.data(), address);
  third.data()[0] = std::byte{1};
}

}  // namespace
}  // namespace tri::memory
