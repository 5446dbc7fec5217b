#include <gmock/gmock.h>

#include <filesystem>

#include "data/dataset.h"
#include "data/made_files.h"

namespace tri::data {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Bytes flat_png(uint8_t value, uint32_t side = 8) {
  return png_bytes(side, side, PNG_FORMAT_GRAY, filled(side * side, value));
}

struct FolderTest : testing::Test {
  FolderTest() {
    folder.write("train/cat/1.png", flat_png(10));
    folder.write("train/cat/2.PNG", flat_png(20, 20));  // another size
    folder.write("train/ant/b.jpg", jpeg_bytes(9, 11, 3, filled(3 * 9 * 11, 30)));
    folder.write("train/ant/a.jpeg", flat_png(40));  // told apart by its bytes
    folder.write("train/ant/notes.txt", {1, 2, 3});
    folder.write("val/cat/x.png", flat_png(50));
  }
  Result<Dataset> open(const OpenOptions& options = {}) const {
    return open_dataset("folder:" + folder.path(), options);
  }
  MadeFolder folder;
};

TEST_F(FolderTest, ReadsClassesInOrder) {
  const auto set = open();
  ASSERT_TRUE(set) << set.error().message;
  const SourceInfo& info = set->train->info();
  EXPECT_THAT(info.class_names, ElementsAre("ant", "cat"));
  EXPECT_EQ(info.count, 4u);
  EXPECT_EQ(info.shape, (tensor::Shape{8, 8, 3}));  // of the first image, ant/a.jpeg
  Record record;
  const uint8_t values[] = {40, 30, 10, 20};
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(set->train->read(i, record));
    EXPECT_EQ(record.label, i < 2 ? 0 : 1);
    EXPECT_THAT(record.pixels, Each(values[i]));
    EXPECT_EQ(record.pixels.size(), 192u);
  }
  ASSERT_TRUE(set->test->read(0, record));  // labels are those of train/
  EXPECT_EQ(record.label, 1);
  EXPECT_EQ(set->train->skipped().count, 0u);
}

TEST_F(FolderTest, TakesThePixelsAskedFor) {
  EXPECT_EQ(open({.pixels = 5})->train->info().shape, (tensor::Shape{5, 5, 3}));
}

TEST_F(FolderTest, ReplacesWhatCannotBeDecoded) {
  folder.write("train/ant/b.jpg", {0xff, 0xd8, 0, 0});
  folder.write("train/cat/1.png", png_header_only(20000, 10000));
  const auto set = open();
  ASSERT_TRUE(set);
  Record record;
  for (int round = 0; round < 2; ++round) {
    for (const uint64_t index : {1u, 2u, 3u}) {
      ASSERT_TRUE(set->train->read(index, record));
      EXPECT_EQ(record.label, 1);
      EXPECT_THAT(record.pixels, Each(20));
    }
  }
  EXPECT_EQ(set->train->skipped().count, 2u);
  EXPECT_THAT(set->train->skipped().first_error, HasSubstr("ant/b.jpg"));
}

TEST_F(FolderTest, RefusesWhenNothingCanBeDecoded) {
  folder.write("val/cat/x.png", {});
  const auto set = open();
  ASSERT_TRUE(set);
  Record record;
  const auto done = set->test->read(0, record);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("cannot be decoded"));
}

TEST_F(FolderTest, NamesAFileThatWentAway) {
  const auto set = open();
  ASSERT_TRUE(set);
  std::filesystem::remove(folder.path() + "/train/cat/1.png");
  Record record;
  const auto done = set->train->read(2, record);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("cat/1.png"));
}

TEST_F(FolderTest, RefusesWrongTrees) {
  EXPECT_THAT(open_dataset("folder:/nowhere").error().message, HasSubstr("cannot list /nowhere"));
  std::filesystem::create_directories(folder.path() + "/train/empty");
  EXPECT_THAT(open().error().message, HasSubstr("train/empty holds no PNG or JPEG"));
  std::filesystem::remove(folder.path() + "/train/empty");
  folder.write("val/dog/x.png", flat_png(1));
  EXPECT_THAT(open().error().message, HasSubstr("class dog"));
  std::filesystem::remove_all(folder.path() + "/val");
  EXPECT_THAT(open().error().message, HasSubstr("--val-split"));
  const auto split = open({.val_split = 0.5});
  ASSERT_TRUE(split);
  EXPECT_EQ(split->test, nullptr);
  EXPECT_EQ(split->judge().info().count, 2u);
}

}  // namespace
}  // namespace tri::data
