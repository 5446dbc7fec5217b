#include "checkpoint/directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint/manifest.h"
#include "checkpoint/scratch_directory.h"

namespace tri::checkpoint {
namespace {

using testing::HasSubstr;

// Saves a checkpoint whose two files hold `content`.
Result<void> save(const std::string& path, const std::string& content, CommitOptions options = {}) {
  auto writer = DirectoryWriter::begin(path, std::move(options));
  if (!writer) return unexpected(writer.error());
  auto model = SafetensorsWriter::create(writer->file("model.safetensors"),
                                         {{"t", DType::kU8, {content.size()}}}, {});
  if (!model) return unexpected(model.error());
  TRI_TRY(model->append(0, std::as_bytes(std::span(content))));
  auto record = model->finish();
  if (!record) return unexpected(record.error());
  writer->add(*record);
  TRI_TRY(writer->write("state.json", content));
  return writer->commit();
}

// The content of a whole and sound checkpoint, or the error.
std::string load(const std::string& path) {
  const auto directory = Directory::open(path);
  if (!directory) return directory.error().message;
  const auto verified = directory->verify();
  if (!verified) return verified.error().message;
  const auto reader = SafetensorsReader::open(directory->file("model.safetensors"));
  if (!reader) return reader.error().message;
  std::string model(reader->tensors()[0].bytes(), '\0');
  const auto read = reader->read(reader->tensors()[0], 0, std::as_writable_bytes(std::span(model)));
  if (!read) return read.error().message;
  const auto state = directory->read("state.json");
  return !state ? state.error().message : *state == model ? model : "files of two checkpoints";
}

TEST(Directory, SavesReplacesAndLeavesNothingElse) {
  const ScratchDirectory scratch(
      std::filesystem::temp_directory_path());  // a disk, if there is one
  for (const bool exchange : {true, false}) {
    ASSERT_TRUE(save(scratch / "last", "one", {.exchange = exchange, .at_step = {}}));
    EXPECT_EQ(load(scratch / "last"), "one");
    ASSERT_TRUE(save(scratch / "last/", "two", {.exchange = exchange, .at_step = {}}));
    EXPECT_EQ(load(scratch / "last/"), "two");
    EXPECT_EQ(scratch.entries(), 1u);
  }
}

// A kill is a process that ends without any destructor, at each step of the protocol.
TEST(Directory, AKillAtAnyStepLeavesOneCompleteCheckpoint) {
  for (const bool exchange : {true, false}) {
    for (const bool has_old : {false, true}) {
      for (int at = 0; at <= static_cast<int>(CommitStep::kDone); ++at) {
        SCOPED_TRACE(testing::Message() << exchange << has_old << " step " << at);
        const auto step = static_cast<CommitStep>(at);
        if (step == CommitStep::kMovedAside && (exchange || !has_old)) continue;
        const ScratchDirectory scratch;
        const std::string path = scratch / "last";
        if (has_old) {
          ASSERT_TRUE(save(path, "old"));
        }
        const pid_t child = ::fork();
        if (child == 0) {
          (void)save(path, "new", {.exchange = exchange, .at_step = [&](CommitStep now) {
                                     if (now == step) ::_exit(9);
                                   }});
          ::_exit(0);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_EQ(WEXITSTATUS(status), 9) << "the step was not reached";

        const bool in_place = step >= CommitStep::kInPlace;
        if (has_old || in_place) {
          EXPECT_EQ(load(path), in_place ? "new" : "old");
          EXPECT_EQ(scratch.entries(), 1u);
        } else {
          EXPECT_THAT(load(path), HasSubstr("there is no checkpoint"));
          EXPECT_EQ(scratch.entries(), 0u);
        }
        ASSERT_TRUE(save(path, "next"));
        EXPECT_EQ(load(path), "next");
        EXPECT_EQ(scratch.entries(), 1u);
      }
    }
  }
}

TEST(Directory, AReaderDoesNotDisturbALivingWriter) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "last";
  ASSERT_TRUE(save(path, "old"));
  std::vector<std::string> seen;
  ASSERT_TRUE(save(path, "new",
                   {.exchange = true, .at_step = [&](CommitStep) { seen.push_back(load(path)); }}));
  EXPECT_THAT(seen, testing::ElementsAre("old", "old", "old", "new", "new", "new"));

  seen.clear();
  ASSERT_TRUE(save(path, "next", {.exchange = false, .at_step = [&](CommitStep) {
                                    seen.push_back(load(path));
                                  }}));
  EXPECT_THAT(seen, testing::ElementsAre("new", "new", "new", "new", "next", "next", "next"));
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(Directory, AnAbandonedWriterLeavesTheOldOne) {
  const ScratchDirectory scratch;
  ASSERT_TRUE(save(scratch / "last", "old"));
  {
    auto writer = DirectoryWriter::begin(scratch / "last");
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->write("state.json", "half"));
  }
  EXPECT_EQ(load(scratch / "last"), "old");
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(Directory, AFullDiskLeavesTheOldOne) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "last";
  ASSERT_TRUE(save(path, "old"));
  const auto fill = [](const DirectoryWriter& writer, const char* name) {
    ASSERT_EQ(::symlink("/dev/full", writer.file(name).c_str()), 0);
  };
  {
    auto writer = DirectoryWriter::begin(path);
    ASSERT_TRUE(writer);
    fill(*writer, "state.json");
    const auto written = writer->write("state.json", "new");
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().message, HasSubstr("No space left on device"));
  }
  {
    auto writer = DirectoryWriter::begin(path);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->write("state.json", "new"));
    fill(*writer, "manifest.json");
    EXPECT_FALSE(writer->commit());
  }
  EXPECT_EQ(load(path), "old");
  EXPECT_EQ(scratch.entries(), 1u);
}

TEST(Directory, ADirectoryThatCannotBeWrittenIsNamed) {
  const ScratchDirectory scratch;
  const auto missing = save(scratch / "absent/last", "x");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("absent/last"));
  EXPECT_THAT(missing.error().message, HasSubstr("check the path"));
  if (::geteuid() == 0) return;  // root may write anywhere
  std::filesystem::permissions(
      scratch / ".", std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  const auto denied = save(scratch / "last", "x");
  std::filesystem::permissions(scratch / ".", std::filesystem::perms::owner_all);
  ASSERT_FALSE(denied);
  EXPECT_THAT(denied.error().message, HasSubstr("choose another directory"));
}

TEST(Directory, DoesNotReplaceWhatIsNoCheckpoint) {
  const ScratchDirectory scratch;
  std::filesystem::create_directory(scratch / "photos");
  spill(scratch / "photos/cat.jpg", "meow");
  const auto saved = save(scratch / "photos", "x");
  ASSERT_FALSE(saved);
  EXPECT_THAT(saved.error().message, HasSubstr("not a checkpoint"));
  spill(scratch / "file", "mine");
  EXPECT_FALSE(save(scratch / "file", "x"));
  EXPECT_EQ(slurp(scratch / "file"), "mine");
  EXPECT_EQ(slurp(scratch / "photos/cat.jpg"), "meow");
}

TEST(Directory, DamageIsNamed) {
  const ScratchDirectory scratch;
  const std::string path = scratch / "last";
  ASSERT_TRUE(save(path, "some content"));
  for (const std::string name : {"model.safetensors", "state.json", "manifest.json"}) {
    const std::string file = path + "/" + name;
    const std::string sound = slurp(file);
    for (const size_t length : {size_t{0}, sound.size() / 2, sound.size() - 1}) {
      if (name == "manifest.json" && length == sound.size() - 1) continue;  // only its line end
      spill(file, sound.substr(0, length));
      EXPECT_THAT(load(path), HasSubstr(name)) << length;
    }
    if (name != "manifest.json") {
      for (size_t i = 0; i < sound.size(); ++i) {
        std::string flipped = sound;
        flipped[i] = static_cast<char>(flipped[i] ^ 4);
        spill(file, flipped);
        EXPECT_THAT(load(path), HasSubstr(name + "' is damaged")) << i;
      }
    }
    std::filesystem::remove(file);
    EXPECT_THAT(load(path), HasSubstr(name));
    spill(file, sound);
  }
  EXPECT_EQ(load(path), "some content");
}

TEST(Manifest, RoundTripsAndRefusesOtherThings) {
  const std::vector<FileRecord> files = {{"a", 0, 0}, {"b.json", uint64_t{1} << 40, 0xdeadbeef}};
  const auto parsed = parse_manifest(encode_manifest(files));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, files);
  for (const char* text :
       {"", "[]", "{}", R"({"version":2,"files":[]})", R"({"version":1,"files":[1]})",
        R"({"version":1,"files":[{"name":"a","bytes":-1,"crc32c":"00000000"}]})",
        R"({"version":1,"files":[{"name":"a","bytes":1,"crc32c":"0000000g"}]})",
        R"({"version":1,"files":[{"name":"../a","bytes":1,"crc32c":"00000000"}]})"}) {
    EXPECT_FALSE(parse_manifest(text)) << text;
  }
}

}  // namespace
}  // namespace tri::checkpoint
