#include "train/run_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/directory.h"
#include "checkpoint/scratch_directory.h"

namespace tri::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::ScratchDirectory;
using testing::AllOf;
using testing::HasSubstr;

Config named(const std::string& out = {}) {
  Config config;
  config.data = "cifar10:/data/cifar";
  config.seed = 4;
  config.out = out;
  return config;
}

void save_checkpoint(const std::string& path) {
  auto writer = checkpoint::DirectoryWriter::begin(path).value();
  ASSERT_TRUE(writer.write("state.json", "{}"));
  ASSERT_TRUE(writer.commit());
}

TEST(RunDirectory, IsNamedAfterTheRun) {
  EXPECT_EQ(run_name(named()), "resnet18-cifar10-triaccel-4");
}

TEST(RunDirectory, IsNumberedWhenTaken) {
  const ScratchDirectory scratch;
  const std::string base = scratch / "deep/runs";
  EXPECT_EQ(make_run_directory(named(), base)->path, base + "/resnet18-cifar10-triaccel-4");
  EXPECT_EQ(make_run_directory(named(), base)->path, base + "/resnet18-cifar10-triaccel-4-2");
  const RunDirectory third = make_run_directory(named(), base).value();
  EXPECT_EQ(third.path, base + "/resnet18-cifar10-triaccel-4-3");
  EXPECT_TRUE(fs::is_directory(fs::path(third.last()).parent_path()));
}

TEST(RunDirectory, ReusesAnExplicitOneWithoutACheckpoint) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "mine";
  EXPECT_EQ(make_run_directory(named(path))->path, path);
  std::ofstream(path + "/notes.txt") << "kept";
  EXPECT_EQ(make_run_directory(named(path + "/"))->path, path);
  EXPECT_TRUE(fs::exists(path + "/notes.txt"));
}

TEST(RunDirectory, ProtectsACheckpoint) {
  for (const bool best : {false, true}) {
    const ScratchDirectory scratch;
    const RunDirectory run = make_run_directory(named(scratch / "mine")).value();
    save_checkpoint(best ? run.best() : run.last());
    const auto again = make_run_directory(named(run.path));
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(again.error().message, HasSubstr("--resume " + run.path));
  }
}

// A kill in the middle of a swap leaves the only checkpoint under another name.
TEST(RunDirectory, ProtectsACheckpointThatWasMovedAside) {
  const ScratchDirectory scratch;
  const RunDirectory run = make_run_directory(named(scratch / "mine")).value();
  save_checkpoint(run.last());
  fs::rename(run.last(), run.last() + ".old");
  EXPECT_FALSE(make_run_directory(named(run.path)));
  EXPECT_TRUE(find_run_directory(run.path));
}

TEST(RunDirectory, IsFoundForResume) {
  const ScratchDirectory scratch;
  const RunDirectory run = make_run_directory(named(scratch / "mine")).value();
  for (const std::string& path : {run.path, scratch / "none"}) {
    const auto found = find_run_directory(path);
    ASSERT_FALSE(found);
    EXPECT_EQ(found.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(found.error().message, HasSubstr("--resume " + path + " holds no checkpoint"));
    EXPECT_THAT(find_run_directory(path, "--repeat").error().message,
                HasSubstr("--repeat " + path + " holds no checkpoint"));
  }
  save_checkpoint(run.last());
  EXPECT_EQ(find_run_directory(run.path + "/")->path, run.path);
}

TEST(RunDirectory, SaysWhyItCannotBeMade) {
  const ScratchDirectory scratch;
  std::ofstream(scratch / "file") << "in the way";
  for (const auto& made : {make_run_directory(named(scratch / "file")),
                           make_run_directory(named(), scratch / "file")}) {
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kFailed);
    EXPECT_THAT(made.error().message, HasSubstr(scratch / "file"));
  }
}

// Root may write everywhere, so a test run by root acts as nobody for a moment.
class AsNobody {
 public:
  AsNobody() { EXPECT_TRUE(user_ != 0 || ::seteuid(65534) == 0); }
  ~AsNobody() { EXPECT_EQ(::seteuid(user_), 0); }

 private:
  uid_t user_ = ::geteuid();
};

TEST(RunDirectory, SaysThatItCannotBeWritten) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "locked";
  fs::permissions(scratch / ".", fs::perms(0755));
  for (const bool again : {false, true}) {
    if (again) fs::create_directories(path + "/checkpoints");
    ASSERT_EQ(::chmod((again ? path : scratch / ".").c_str(), 0555), 0);
    const auto made = [&] {
      const AsNobody nobody;
      return make_run_directory(named(path));
    }();
    ASSERT_EQ(::chmod((again ? path : scratch / ".").c_str(), 0755), 0);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, ErrorCode::kFailed);
    EXPECT_THAT(made.error().message, AllOf(HasSubstr(path), HasSubstr("Permission denied")));
  }
}

}  // namespace
}  // namespace tri::train
