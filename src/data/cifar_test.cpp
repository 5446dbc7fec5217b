#include <gmock/gmock.h>

#include <filesystem>

#include "data/dataset.h"
#include "data/made_files.h"

namespace tri::data {
namespace {

using ::testing::HasSubstr;

// Record r of a file: label bytes, then planes with 100 + r, 110 + r, 120 + r but for the first
// pixel, which is r, r + 1, r + 2.
Bytes records(size_t count, const Bytes& label_bytes) {
  Bytes bytes;
  for (size_t r = 0; r < count; ++r) {
    bytes += label_bytes;
    for (size_t c = 0; c < 3; ++c) {
      Bytes plane = filled(1024, static_cast<uint8_t>(100 + 10 * c + r));
      plane[0] = static_cast<uint8_t>(r + c);
      bytes += plane;
    }
  }
  return bytes;
}

void write_cifar10(const MadeFolder& folder, const std::string& under = "") {
  for (int i = 1; i <= 5; ++i) {
    folder.write(under + "data_batch_" + std::to_string(i) + ".bin",
                 records(static_cast<size_t>(i), {static_cast<uint8_t>(i)}));
  }
  folder.write(under + "test_batch.bin", records(2, {9}));
}

TEST(Cifar, ReadsRecordsAcrossFiles) {
  const MadeFolder folder;
  write_cifar10(folder);
  const auto set = open_dataset("cifar10:" + folder.path());
  ASSERT_TRUE(set) << set.error().message;
  const SourceInfo& info = set->train->info();
  EXPECT_EQ(info.count, 15u);
  EXPECT_EQ(info.classes(), 10);
  EXPECT_EQ(info.class_names[3], "cat");
  EXPECT_EQ(info.shape, (tensor::Shape{32, 32, 3}));
  EXPECT_EQ(set->test->info().count, 2u);
  EXPECT_EQ(set->validation, nullptr);

  Record record;
  ASSERT_TRUE(set->train->read(0, record));
  EXPECT_EQ(record.label, 1);
  ASSERT_TRUE(set->train->read(8, record));  // files hold 1, 2, 3, 4, 5: the third of file 4
  EXPECT_EQ(record.label, 4);
  ASSERT_EQ(record.pixels.size(), 3072u);
  EXPECT_EQ(Bytes(record.pixels.begin(), record.pixels.begin() + 6),
            (Bytes{2, 3, 4, 102, 112, 122}));
  ASSERT_TRUE(set->train->read(14, record));
  EXPECT_EQ(record.label, 5);
}

TEST(Cifar, FindsTheFolderOfTheArchive) {
  const MadeFolder folder;
  write_cifar10(folder, "cifar-10-batches-bin/");
  EXPECT_TRUE(open_dataset("cifar10:" + folder.path()));
}

TEST(Cifar, ReadsFineLabels) {
  const MadeFolder folder;
  folder.write("train.bin", records(3, {4, 99}));
  folder.write("test.bin", records(1, {19, 0}));
  const auto set = open_dataset("cifar100:" + folder.path());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->train->info().classes(), 100);
  EXPECT_EQ(set->train->info().class_names[99], "worm");
  Record record;
  ASSERT_TRUE(set->train->read(2, record));
  EXPECT_EQ(record.label, 99);
  EXPECT_EQ(record.pixels[1], 3);
}

TEST(Cifar, RefusesWhatIsWrong) {
  const MadeFolder folder;
  write_cifar10(folder);
  const std::string spec = "cifar10:" + folder.path();

  const std::string third = folder.write("data_batch_3.bin", records(2, {10}));
  const auto set = open_dataset(spec);
  ASSERT_TRUE(set);
  Record record;
  const auto label = set->train->read(3, record);
  ASSERT_FALSE(label);
  EXPECT_THAT(label.error().message, HasSubstr("label 10 of record 0"));

  // Swapped under the run: shorter, or of the same size but written again.
  std::filesystem::resize_file(third, 3000);
  EXPECT_THAT(set->train->read(3, record).error().message,
              HasSubstr("changed while it was in use"));

  EXPECT_THAT(open_dataset(spec).error().message, HasSubstr("has 3000 bytes"));
  folder.write("data_batch_3.bin", {});
  EXPECT_THAT(open_dataset(spec).error().message, HasSubstr("has 0 bytes"));
  std::filesystem::remove(third);
  EXPECT_THAT(open_dataset(spec).error().message, HasSubstr("No such file"));
  EXPECT_EQ(open_dataset(spec).error().code, ErrorCode::kFailed);
}

}  // namespace
}  // namespace tri::data
