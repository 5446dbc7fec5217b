#include "train/ceiling_watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/mebibyte.h"

namespace tri::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using base::kMiB;
constexpr int64_t kSecond = 1'000'000'000;

// A machine of files: /proc with as much memory as told.
class FakeMachine {
 public:
  FakeMachine() : root_(fs::temp_directory_path() / fmt::format("tri_watch_{}", getpid())) {
    fs::create_directories(root_ / "proc/self");
    std::ofstream(root_ / "proc/self/status") << "VmRSS:\t0 kB\nVmHWM:\t0 kB\nVmSize:\t0 kB\n";
  }
  ~FakeMachine() { fs::remove_all(root_); }
  void available(uint64_t bytes) {
    std::ofstream(root_ / "proc/meminfo")
        << fmt::format("MemTotal: {} kB\nMemAvailable: {} kB\n", 1 << 24, bytes / 1024);
  }
  void request(const std::string& memory, uint64_t serial) {
    const fs::path temporary = root_ / "control.tmp";
    std::ofstream(temporary) << fmt::format(R"({{"memory": "{}", "serial": {}}})", memory, serial);
    fs::rename(temporary, control());
  }
  std::string control() const { return (root_ / "control.json").string(); }
  memory::Probes probes() const { return memory::Probes(root_); }
  CeilingWatch watch(uint64_t ceiling) const {
    return {RequestReader(control()), probes(), ceiling, ceiling};
  }

 private:
  fs::path root_;
};

TEST(CeilingWatch, hears_requests_at_once) {
  FakeMachine machine;
  machine.available(10000 * kMiB);
  CeilingWatch watch = machine.watch(512 * kMiB);
  EXPECT_FALSE(watch.poll(1));
  machine.request("256MiB", 1);
  const auto moved = watch.poll(2);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->bytes, 256 * kMiB);
  EXPECT_EQ(watch.asked(), 256 * kMiB);
  EXPECT_EQ(watch.request_serial(), 1u);
  EXPECT_THAT(moved->reason, HasSubstr("256MiB"));
  EXPECT_FALSE(watch.poll(3));
  EXPECT_FALSE(watch.poll(3 * kSecond));  // and nobody takes it back
}

TEST(CeilingWatch, gives_way_to_others_and_comes_back) {
  FakeMachine machine;
  machine.available(10000 * kMiB);
  CeilingWatch watch = machine.watch(1000 * kMiB);
  EXPECT_FALSE(watch.poll(1));
  machine.available(500 * kMiB);
  EXPECT_FALSE(watch.poll(kSecond / 2));  // not looked yet
  const auto lower = watch.poll(2 * kSecond);
  ASSERT_TRUE(lower);
  EXPECT_EQ(lower->bytes, static_cast<uint64_t>(0.9 * 500 * kMiB));
  EXPECT_EQ(watch.asked(), 1000 * kMiB);
  machine.available(510 * kMiB);
  EXPECT_FALSE(watch.poll(4 * kSecond)) << "a breath";
  machine.available(10000 * kMiB);
  const auto back = watch.poll(6 * kSecond);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->bytes, 1000 * kMiB);
}

TEST(CeilingWatch, goes_on_where_a_run_stopped) {
  FakeMachine machine;
  machine.available(10000 * kMiB);
  machine.request("256MiB", 1);
  // The request was met before, then --memory 1000MiB came, and others pressed it to 400 MiB.
  CeilingWatch watch(RequestReader(machine.control(), 1), machine.probes(), 1000 * kMiB,
                     400 * kMiB);
  const auto back = watch.poll(1);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->bytes, 1000 * kMiB);
  machine.request("300MiB", 2);
  EXPECT_EQ(watch.poll(2).value_or(CeilingMove{}).bytes, 300 * kMiB);
  EXPECT_EQ(watch.request_serial(), 2u);
}

TEST(CeilingWatch, survives_a_machine_that_tells_nothing) {
  FakeMachine machine;
  CeilingWatch watch = machine.watch(1000 * kMiB);
  EXPECT_FALSE(watch.poll(1));
  EXPECT_FALSE(watch.poll(2 * kSecond));
}

}  // namespace
}  // namespace tri::train
