#include "metrics/jsonl_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "base/draws.h"

namespace tri::metrics {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test, removed with it.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "tri_metrics_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path file() const { return path_ / "metrics.jsonl"; }

 private:
  fs::path path_;
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

Event step_event(uint64_t step) { return {.step = step, .samples = 32 * step}; }

std::string line_of(uint64_t step) { return to_json(step_event(step)) + "\n"; }

std::string lines_up_to(uint64_t last) {
  std::string lines;
  for (uint64_t step = 0; step <= last; ++step) lines += line_of(step);
  return lines;
}

TEST(JsonlWriter, WritesALineAtOnce) {
  const Folder folder;
  JsonlWriter writer = JsonlWriter::create(folder.file()).value();
  for (uint64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(writer.write(step_event(step)));
    EXPECT_EQ(read(folder.file()), lines_up_to(step));
  }
}

TEST(JsonlWriter, CreateReplacesAnOldFile) {
  const Folder folder;
  write_text(folder.file(), "of an earlier run\n");
  const JsonlWriter writer = JsonlWriter::create(folder.file()).value();
  EXPECT_EQ(read(folder.file()), "");
}

TEST(JsonlWriter, MovesWithItsFile) {
  const Folder folder;
  JsonlWriter writer = JsonlWriter::create(folder.file()).value();
  JsonlWriter moved = std::move(writer);
  ASSERT_TRUE(moved.write(step_event(0)));
  moved = JsonlWriter::resume(folder.file(), 0).value();
  ASSERT_TRUE(moved.write(step_event(1)));
  EXPECT_EQ(read(folder.file()), lines_up_to(1));
}

TEST(JsonlWriter, ResumeGoesOnBehindTheCheckpoint) {
  const Folder folder;
  write_text(folder.file(), lines_up_to(9));
  JsonlWriter writer = JsonlWriter::resume(folder.file(), 4).value();
  EXPECT_EQ(read(folder.file()), lines_up_to(4));
  ASSERT_TRUE(writer.write(step_event(5)));
  EXPECT_EQ(read(folder.file()), lines_up_to(5));
}

TEST(JsonlWriter, ResumeKeepsAllEventsOfTheStep) {
  const Folder folder;
  const std::string kept =
      line_of(3) + line_of(4) + to_json({.kind = EventKind::kCheckpoint, .step = 4}) + "\n";
  write_text(folder.file(), kept + line_of(5));
  ASSERT_TRUE(JsonlWriter::resume(folder.file(), 4));
  EXPECT_EQ(read(folder.file()), kept);
}

// As curvature that was measured, or a ceiling that moved, behind the checkpoint of a killed run.
TEST(JsonlWriter, ResumeDropsWhatWillBeMadeAgain) {
  const auto line = [](EventKind kind, uint64_t step, Fields fields = {}) {
    return to_json({.kind = kind, .step = step, .fields = std::move(fields)}) + "\n";
  };
  const auto saved = [&line](const char* which) {
    return line(EventKind::kCheckpoint, 4, Fields{{"which", which}});
  };
  const Folder folder;
  const std::string again = line(EventKind::kControl, 4);
  const std::string kept =
      line_of(4) + saved("last") + again + saved("last") + saved("best") + line(EventKind::kEnd, 4);
  write_text(folder.file(), kept + again + saved("best") + line_of(5));
  ASSERT_TRUE(JsonlWriter::resume(folder.file(), 4));
  EXPECT_EQ(read(folder.file()), kept);
}

TEST(JsonlWriter, ResumeOfAMissingFileStartsOne) {
  const Folder folder;
  JsonlWriter writer = JsonlWriter::resume(folder.file(), 4).value();
  ASSERT_TRUE(writer.write(step_event(5)));
  EXPECT_EQ(read(folder.file()), line_of(5));
}

TEST(JsonlWriter, ResumeDropsWhatIsNoEventAtTheEnd) {
  const std::string zeros(100, '\0');  // as a power cut may leave behind
  for (const std::string& rest :
       {std::string("{\"event\":\"st"), zeros, zeros + "\n", std::string("\n\n"),
        std::string("[]\n7\n"), std::string("{\"step\":-1}\n{\"step\":\"1\"}\n{}\n"),
        std::string("{\"step\":1}")}) {
    const Folder folder;
    write_text(folder.file(), lines_up_to(4) + rest);
    ASSERT_TRUE(JsonlWriter::resume(folder.file(), 100));
    EXPECT_EQ(read(folder.file()), lines_up_to(4)) << rest;
  }
}

// A file cut at any byte keeps exactly its complete lines of steps up to the checkpoint.
TEST(JsonlWriter, ResumeSurvivesACutAnywhere) {
  const std::string all = lines_up_to(12);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    const Folder folder;
    const auto cut = draw.in<size_t>(0, all.size() + 1);
    const auto last_step = draw.in<uint64_t>(0, 15);
    write_text(folder.file(), all.substr(0, cut));
    ASSERT_TRUE(JsonlWriter::resume(folder.file(), last_step));
    std::string expected;
    for (uint64_t step = 0; step <= last_step && step <= 12; ++step) {
      if (expected.size() + line_of(step).size() > cut) break;
      expected += line_of(step);
    }
    EXPECT_EQ(read(folder.file()), expected);
  }
}

TEST(JsonlWriter, SaysWhyAFileCannotBeOpened) {
  const Folder folder;
  const fs::path path = folder.file() / "below" / "a file that is not there";
  const Result<JsonlWriter> results[] = {JsonlWriter::create(path), JsonlWriter::resume(path, 0)};
  for (const Result<JsonlWriter>& result : results) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kFailed);
    EXPECT_THAT(result.error().message, testing::HasSubstr(path.string()));
    EXPECT_THAT(result.error().message, testing::HasSubstr("No such file or directory"));
  }
}

TEST(JsonlWriter, SaysThatTheDiskIsFull) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  JsonlWriter writer = JsonlWriter::create("/dev/full").value();
  const Result<void> result = writer.write(step_event(0));
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message, testing::HasSubstr("No space left on device"));
}

// A limit on the file's size makes write(2) take a part of the line first and refuse the rest.
TEST(JsonlWriter, LeavesNoPartOfALineBehind) {
  const Folder folder;
  JsonlWriter writer = JsonlWriter::create(folder.file()).value();
  ASSERT_TRUE(writer.write(step_event(0)));
  rlimit old_limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit = {line_of(0).size() + 5, old_limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Result<void> result = writer.write(step_event(1));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_FALSE(result);
  EXPECT_EQ(read(folder.file()), line_of(0));
  ASSERT_TRUE(writer.write(step_event(1)));
  EXPECT_EQ(read(folder.file()), lines_up_to(1));
}

}  // namespace
}  // namespace tri::metrics
