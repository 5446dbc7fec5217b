#include "train/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>

#include "checkpoint/scratch_directory.h"
#include "train/run_directory.h"
#include "train/summary.h"
#include "tri/run_request.h"

namespace tri::train {
namespace {

using checkpoint::ScratchDirectory;
using checkpoint::spill;
using testing::HasSubstr;

void start_run(const ScratchDirectory& folder, Status status) {
  Summary summary;
  summary.status = status;
  const auto written = write_summary(folder / "summary.json", summary);
  ASSERT_TRUE(written) << written.error().message;
}

TEST(Request, ReachesTheReaderOnce) {
  const ScratchDirectory folder;
  start_run(folder, Status::kRunning);
  const auto running = RunLock::take({folder / ""});
  RequestReader reader(folder / "control.json");
  EXPECT_EQ(reader.poll(), std::nullopt);
  ASSERT_EQ(request_memory(folder / "", "96MiB").value(), 1);
  EXPECT_EQ(reader.poll(), (Request{"96MiB", 1}));
  EXPECT_EQ(reader.poll(), std::nullopt);
  // The same size again is a request of its own, and only the newest one counts.
  ASSERT_EQ(request_memory(folder / "", "64MiB").value(), 2);
  ASSERT_EQ(request_memory(folder / "", "96MiB").value(), 3);
  EXPECT_EQ(reader.poll(), (Request{"96MiB", 3}));
  EXPECT_EQ(reader.poll(), std::nullopt);
  EXPECT_EQ(folder.entries(), 2);  // no temporary file stays
}

TEST(Request, ThoseBeforeAResumeAreNotMetAgain) {
  const ScratchDirectory folder;
  start_run(folder, Status::kRunning);
  const auto running = RunLock::take({folder / ""});
  ASSERT_TRUE(request_memory(folder / "", "96MiB"));
  RequestReader reader(folder / "control.json", 1);
  EXPECT_EQ(reader.poll(), std::nullopt);
  ASSERT_TRUE(request_memory(folder / "", "50%"));
  EXPECT_EQ(reader.poll(), (Request{"50%", 2}));
}

TEST(Request, WhatIsNoRequestIsNone) {
  const ScratchDirectory folder;
  for (const char* const text :
       {"", "{", "[]", "{}", R"({"memory":"96MiB"})", R"({"memory":5,"serial":1})",
        R"({"memory":"much","serial":1})", R"({"memory":"1G","serial":-1})",
        R"({"memory":"1G","serial":"1"})", "\xff\xfe"}) {
    spill(folder / "control.json", text);
    RequestReader reader(folder / "control.json");
    EXPECT_EQ(reader.poll(), std::nullopt) << text;
  }
  std::filesystem::remove(folder / "control.json");
  std::filesystem::create_directory(folder / "control.json");
  EXPECT_EQ(RequestReader(folder / "control.json").poll(), std::nullopt);
}

TEST(Request, RefusesWithASentence) {
  const ScratchDirectory folder;
  const auto refusal = [&](const std::string& directory, const std::string& memory) {
    const Result<uint64_t> done = request_memory(directory, memory);
    return done ? Error{} : done.error();
  };
  EXPECT_THAT(refusal(folder / "none", "96MiB").message, HasSubstr("not the directory of a run"));
  start_run(folder, Status::kDone);
  const Error over = refusal(folder / "", "96MiB");
  EXPECT_EQ(over.code, ErrorCode::kInvalid);
  EXPECT_THAT(over.message, HasSubstr("status is done"));
  start_run(folder, Status::kRunning);
  EXPECT_THAT(refusal(folder / "", "96MiB").message, HasSubstr("its process is gone"));
  const auto running = RunLock::take({folder / ""});
  const Error size = refusal(folder / "", "much");
  EXPECT_EQ(size.code, ErrorCode::kInvalid);
  EXPECT_THAT(size.message, HasSubstr("much"));
  std::filesystem::create_directory(folder / "control.json");  // rename() cannot replace it
  EXPECT_EQ(refusal(folder / "", "96MiB").code, ErrorCode::kFailed);
}

}  // namespace
}  // namespace tri::train
