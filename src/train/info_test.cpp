#include "tri/info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace tri {
namespace {

using testing::HasSubstr;

// A made-up machine: files below a root folder.
class InfoTest : public testing::Test {
 protected:
  ~InfoTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  SystemInfo read() const { return system_info(root_.string()); }
  static const MemoryLimit& limit(const SystemInfo& info, const std::string& name) {
    return *std::find_if(info.limits.begin(), info.limits.end(),
                         [&](const MemoryLimit& one) { return one.name == name; });
  }

  std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("info_test_" + std::to_string(getpid()));
};

TEST_F(InfoTest, SmallestLimitBinds) {
  write("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 1000 kB\n");
  write("proc/self/limits", "Max address space         3000000              unlimited   bytes\n");
  const SystemInfo info = read();
  EXPECT_EQ(info.memory_bytes, 4000u * 1024);
  EXPECT_TRUE(limit(info, "MemAvailable").binds);
  EXPECT_FALSE(limit(info, "RLIMIT_AS").binds);
  EXPECT_EQ(limit(info, "RLIMIT_AS").bytes, 3000000u);
}

TEST_F(InfoTest, LimitBelowOwnUseIsAWarning) {
  write("proc/self/status", "VmSize: 8000 kB\nVmRSS: 100 kB\n");
  write("proc/self/limits", "Max address space         3000000              unlimited   bytes\n");
  const SystemInfo info = read();
  ASSERT_EQ(info.warnings.size(), 1u);
  EXPECT_THAT(info.warnings[0], HasSubstr("RLIMIT_AS is 2.9 MiB"));
  EXPECT_THAT(info.warnings[0], HasSubstr("7.8 MiB"));
}

TEST_F(InfoTest, EmptyMachineIsAllUnknown) {
  const SystemInfo info = read();
  EXPECT_EQ(info.memory_bytes, 0u);
  EXPECT_TRUE(info.data.empty());
  for (const MemoryLimit& one : info.limits) {
    EXPECT_FALSE(one.bytes.has_value()) << one.name;
    EXPECT_FALSE(one.binds) << one.name;
    EXPECT_FALSE(one.comment.empty()) << one.name;
  }
}

TEST_F(InfoTest, FindsFashionMnist) {
  write("usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz", "");
  const SystemInfo info = read();
  ASSERT_EQ(info.data.size(), 1u);
  EXPECT_EQ(info.data[0].name, "fashion-mnist");
}

TEST_F(InfoTest, ActiveTargetIsRunnable) {
  const SystemInfo info = read();
  EXPECT_THAT(info.simd_targets, testing::Contains(info.simd_target));
}

}  // namespace
}  // namespace tri
