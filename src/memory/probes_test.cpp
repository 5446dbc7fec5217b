#include "memory/probes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/mebibyte.h"
#include "memory/arena.h"

namespace tri::memory {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Source = Limit::Source;
using State = Limit::State;

using base::kMiB;

// A directory that looks like "/" to a probe: a machine of 1000 MiB, 800 available, of which the
// process holds 20. No control groups.
class FakeRoot {
 public:
  FakeRoot() {
    std::string name = (fs::temp_directory_path() / "probes_test.XXXXXX").string();
    path_ = mkdtemp(name.data());
    write("proc/meminfo", "MemTotal:        1024000 kB\nMemFree: 9 kB\nMemAvailable:  819200 kB\n");
    write("proc/self/status",
          "Name:\ttriaccel\nVmSize:\t  102400 kB\nVmHWM:\t   30720 kB\nVmRSS:\t   20480 kB\n");
    write("proc/self/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max address space         unlimited            unlimited            bytes     \n");
    write("proc/self/cgroup", "");
    write("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
  }
  ~FakeRoot() { fs::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const char* file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  void remove(const char* file) const { fs::remove_all(path_ / file); }
  void mount_v2() const {
    write("proc/self/mountinfo",
          "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
          "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n");
  }
  void mount_v1(const char* top) const {
    write("proc/self/mountinfo",
          fmt::format("31 22 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
                      "32 22 0:28 {} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
                      top));
  }
  const fs::path& path() const { return path_; }
  Limits limits() const { return Probes(path_).limits(); }
  Limit limit(Source source) const { return limits().all.at(static_cast<size_t>(source)); }

 private:
  fs::path path_;
};

TEST(Probes, reads_the_process_and_the_machine) {
  const FakeRoot root;
  const Probes probes(root.path());
  EXPECT_EQ(probes.resident().bytes, 20 * kMiB);
  EXPECT_EQ(probes.peak_resident().bytes, 30 * kMiB);
  EXPECT_EQ(probes.address_space().bytes, 100 * kMiB);
  EXPECT_EQ(probes.total().bytes, 1000 * kMiB);
  EXPECT_EQ(probes.available().bytes, 800 * kMiB);
}

TEST(Probes, without_groups_the_available_memory_binds) {
  const FakeRoot root;
  const Limits limits = root.limits();
  ASSERT_EQ(limits.all.size(), 6U);
  for (size_t i = 0; i < limits.all.size(); ++i) {
    EXPECT_EQ(limits.all[i].source, static_cast<Source>(i));
  }
  EXPECT_EQ(limits.all[0].state, State::kUnlimited);
  EXPECT_EQ(limits.all[2].state, State::kUnlimited);
  EXPECT_EQ(limits.all[5].state, State::kUnlimited);
  ASSERT_NE(limits.binding(), nullptr);
  EXPECT_EQ(limits.binding()->source, Source::kAvailable);
  EXPECT_EQ(limits.least(), 820 * kMiB);  // what is available and what it holds already
  EXPECT_FALSE(limits.binding()->exceeded());
}

TEST(Probes, v2_takes_the_tightest_of_the_hierarchy) {
  const FakeRoot root;
  root.mount_v2();
  root.write("proc/self/cgroup", "0::/user.slice/job/step\n");
  root.write("sys/fs/cgroup/user.slice/memory.max", "734003200\n");
  root.write("sys/fs/cgroup/user.slice/memory.high", "max\n");
  root.write("sys/fs/cgroup/user.slice/job/memory.max", "419430400\n");
  root.write("sys/fs/cgroup/user.slice/job/memory.high", "314572800\n");
  root.write("sys/fs/cgroup/user.slice/job/step/memory.max", "max\n");
  const Limit max = root.limit(Source::kCgroupMax);
  EXPECT_EQ(max.bytes, 400 * kMiB);
  EXPECT_EQ(max.comment, "/sys/fs/cgroup/user.slice/job/memory.max");
  EXPECT_EQ(root.limit(Source::kCgroupHigh).bytes, 300 * kMiB);
  EXPECT_EQ(root.limits().binding()->source, Source::kCgroupHigh);
  EXPECT_EQ(root.limit(Source::kCgroupV1).state, State::kUnlimited);
}

TEST(Probes, v2_inside_a_container_sees_its_group_as_the_top) {
  const FakeRoot root;
  root.mount_v2();
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "104857600\n");
  EXPECT_EQ(root.limits().least(), 100 * kMiB);
  root.write("proc/self/cgroup", "0::/../outside\n");
  EXPECT_EQ(root.limits().least(), 100 * kMiB);
}

TEST(Probes, v1_walks_up_and_knows_its_word_for_unlimited) {
  const FakeRoot root;
  root.mount_v1("/");
  root.write("proc/self/cgroup", "5:cpu:/\n4:memory:/batch/job\n0::/\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/batch/job/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(root.limit(Source::kCgroupV1).state, State::kUnlimited);
  root.write("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", "209715200\n");
  EXPECT_EQ(root.limit(Source::kCgroupV1).bytes, 200 * kMiB);
  EXPECT_EQ(root.limits().binding()->source, Source::kCgroupV1);
}

TEST(Probes, v1_inside_a_container_maps_the_group_to_the_mount) {
  const FakeRoot root;
  root.mount_v1("/docker/with\\040blank");
  root.write("proc/self/cgroup", "4:cpu,memory:/docker/with blank/inner\n");
  root.write("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "52428800\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n");
  EXPECT_EQ(root.limit(Source::kCgroupV1).bytes, 50 * kMiB);
  root.write("proc/self/cgroup", "4:memory:/elsewhere\n");
  EXPECT_EQ(root.limit(Source::kCgroupV1).bytes, 100 * kMiB);
}

TEST(Probes, malformed_limits_are_unknown_and_say_why) {
  const FakeRoot root;
  root.mount_v2();
  root.write("proc/self/cgroup", "0::/job\n");
  for (const char* const text : {"", "lots\n", "-5\n", "12x\n", "99999999999999999999999\n"}) {
    root.write("sys/fs/cgroup/job/memory.max", text);
    const Limit limit = root.limit(Source::kCgroupMax);
    EXPECT_EQ(limit.state, State::kUnknown) << text;
    EXPECT_THAT(limit.comment, HasSubstr("/sys/fs/cgroup/job/memory.max says"));
    EXPECT_EQ(root.limits().binding()->source, Source::kAvailable);
  }
  root.remove("sys/fs/cgroup/job/memory.max");
  root.write("sys/fs/cgroup/job/memory.max/a_directory", "");
  EXPECT_EQ(root.limit(Source::kCgroupMax).state, State::kUnknown);
}

TEST(Probes, malformed_tables_are_no_groups) {
  const FakeRoot root;
  for (const char* const text :
       {":", "0:", "::", "0::", "\n\n", "memory", "4:memory:", "\xff\xfe"}) {
    root.write("proc/self/cgroup", text);
    for (const char* const mounts : {" - ", "a - cgroup2 x y", "1 2 3 / - cgroup2 x y",
                                     "1 2 3 / /m\\04 rw - cgroup2 x y\n5 - cgroup x memory"}) {
      root.write("proc/self/mountinfo", mounts);
      EXPECT_EQ(root.limits().binding()->source, Source::kAvailable) << text << mounts;
    }
  }
}

TEST(Probes, a_missing_proc_leaves_everything_unknown) {
  const FakeRoot root;
  root.remove("proc");
  const Probes probes(root.path());
  EXPECT_FALSE(probes.resident().bytes.has_value());
  EXPECT_THAT(probes.resident().why_unknown, HasSubstr("No such file"));
  const Limits limits = probes.limits();
  EXPECT_EQ(limits.binding(), nullptr);
  EXPECT_FALSE(limits.least().has_value());
  for (const Limit& limit : limits.all) {
    EXPECT_EQ(limit.state, State::kUnknown);
    EXPECT_THAT(limit.comment, HasSubstr("cannot read"));
    EXPECT_FALSE(limit.exceeded());
  }
  EXPECT_FALSE(probes.reset_peak_resident().has_value());
}

TEST(Probes, malformed_fields_are_unknown) {
  const FakeRoot root;
  for (const char* const text : {"", "VmRSS:", "VmRSS: kB", "VmRSS: 12 MB", "VmRSSX: 1 kB",
                                 "VmRSS: 99999999999999999999 kB", "VmRSS: 9223372036854775 kB0"}) {
    root.write("proc/self/status", text);
    const Reading reading = Probes(root.path()).resident();
    EXPECT_FALSE(reading.bytes.has_value()) << text;
    EXPECT_THAT(reading.why_unknown, HasSubstr("VmRSS"));
  }
}

TEST(Probes, a_limit_below_what_is_held_is_exceeded) {
  const FakeRoot root;
  root.mount_v2();
  root.write("proc/self/cgroup", "0::/job\n");
  root.write("sys/fs/cgroup/job/memory.high", "10485760\n");
  EXPECT_TRUE(root.limit(Source::kCgroupHigh).exceeded());
  EXPECT_EQ(root.limit(Source::kCgroupHigh).used, 20 * kMiB);
  // Addresses count against RLIMIT_AS, not resident bytes.
  root.write("proc/self/limits", "Max address space  52428800  unlimited  bytes\n");
  EXPECT_EQ(root.limit(Source::kAddressSpace).bytes, 50 * kMiB);
  EXPECT_TRUE(root.limit(Source::kAddressSpace).exceeded());
  root.write("proc/self/limits", "Max address space");
  EXPECT_EQ(root.limit(Source::kAddressSpace).state, State::kUnknown);
  root.write("proc/self/limits", "Max address space  \n");
  EXPECT_EQ(root.limit(Source::kAddressSpace).state, State::kUnknown);
}

TEST(Probes, a_reset_writes_five) {
  const FakeRoot root;
  root.write("proc/self/clear_refs", "");
  EXPECT_TRUE(Probes(root.path()).reset_peak_resident().has_value());
  std::string text;
  std::getline(std::ifstream(root.path() / "proc/self/clear_refs"), text);
  EXPECT_EQ(text, "5");
}

TEST(Probes, the_real_peak_falls_after_a_reset) {
  const Probes probes;
  if (access("/proc/self/clear_refs", W_OK) != 0) GTEST_SKIP() << "no /proc/self/clear_refs";
  {
    Arena arena = std::move(Arena::reserve(64 * kMiB)).value();
    ASSERT_TRUE(arena.resize(64 * kMiB).has_value());
  }
  const size_t peak = probes.peak_resident().bytes.value();
  EXPECT_GE(peak, 64 * kMiB);
  ASSERT_TRUE(probes.reset_peak_resident().has_value());
  EXPECT_LE(probes.peak_resident().bytes.value(), peak - 60 * kMiB);
}

TEST(Probes, the_real_limits_agree_with_the_system) {
  const Limits limits = Probes().limits();
  ASSERT_NE(limits.binding(), nullptr);
  rlimit addresses{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &addresses), 0);
  const Limit& limit = limits.all.at(static_cast<size_t>(Source::kAddressSpace));
  if (addresses.rlim_cur == RLIM_INFINITY) {
    EXPECT_EQ(limit.state, State::kUnlimited);
  } else {
    EXPECT_EQ(limit.bytes, addresses.rlim_cur);
  }
  const Limit& total = limits.all.at(static_cast<size_t>(Source::kTotal));
  EXPECT_EQ(total.bytes, static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page_bytes());
}

}  // namespace
}  // namespace tri::memory
