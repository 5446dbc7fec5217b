#include "train/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tri::train {
namespace {

// A root folder with the given /proc/cpuinfo.
class MachineTest : public testing::Test {
 protected:
  MachineTest() { std::filesystem::create_directories(root_ / "proc"); }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  Machine read(const std::string& cpuinfo) {
    std::ofstream(root_ / "proc/cpuinfo") << cpuinfo;
    return read_machine(root_.string());
  }

  std::filesystem::path root_ =
      std::filesystem::path(testing::TempDir()) / ("machine_test_" + std::to_string(getpid()));
};

TEST_F(MachineTest, CountsCoresOverPackagesAndHyperthreads) {
  const Machine machine = read(
      "processor\t: 0\nmodel name\t: Made Up 3000\nphysical id\t: 0\ncore id\t\t: 0\n\n"
      "processor\t: 1\nmodel name\t: Made Up 3000\nphysical id\t: 0\ncore id\t\t: 0\n\n"
      "processor\t: 2\nmodel name\t: Made Up 3000\nphysical id\t: 1\ncore id\t\t: 0\n");
  EXPECT_EQ(machine.cpu, "Made Up 3000");
  EXPECT_EQ(machine.cores, 2u);
  EXPECT_GE(machine.threads, 1u);
}

TEST_F(MachineTest, FallsBackOnProcessorsWhereCoresAreNotTold) {
  const Machine machine = read("processor\t: 0\nBogoMIPS\t: 50\n\nprocessor\t: 1\n");
  EXPECT_EQ(machine.cpu, "unknown processor");
  EXPECT_EQ(machine.cores, 2u);
}

TEST_F(MachineTest, UnreadableTableLeavesDefaults) {
  const Machine machine = read_machine((root_ / "nowhere").string());
  EXPECT_EQ(machine.cpu, "unknown processor");
  EXPECT_EQ(machine.cores, 1u);
  EXPECT_GE(machine.threads, 1u);
}

}  // namespace
}  // namespace tri::train
