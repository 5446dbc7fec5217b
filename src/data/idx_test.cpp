#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>

#include "data/dataset.h"
#include "data/made_files.h"

namespace tri::data {
namespace {

using ::testing::HasSubstr;

// Images of 3 rows and 2 columns; pixel p of image i is 10 i + p.
Bytes images(uint32_t count, uint32_t claimed) {
  Bytes bytes = big_endian({0x803, claimed, 3, 2});
  for (uint32_t i = 0; i < count; ++i) {
    for (uint32_t p = 0; p < 6; ++p) bytes.push_back(static_cast<uint8_t>(10 * i + p));
  }
  return bytes;
}
Bytes labels(const Bytes& values) {
  Bytes bytes = big_endian({0x801, static_cast<uint32_t>(values.size())});
  return bytes += values;
}

struct IdxTest : testing::Test {
  IdxTest() {
    folder.write("train-images-idx3-ubyte", images(4, 4));
    folder.write("train-labels-idx1-ubyte", labels({3, 1, 4, 9}));
    folder.write("t10k-images-idx3-ubyte.gz", gzipped(images(2, 2)));
    folder.write("t10k-labels-idx1-ubyte.gz", gzipped(labels({0, 7})));
  }
  std::string refusal() const {
    const auto set = open_dataset("mnist:" + folder.path());
    return set ? "opened" : set.error().message;
  }
  MadeFolder folder;
};

TEST_F(IdxTest, ReadsPlainAndPacked) {
  const auto set = open_dataset("mnist:" + folder.path());
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->train->info().shape, (tensor::Shape{3, 2, 1}));
  EXPECT_EQ(set->train->info().count, 4u);
  Record record;
  ASSERT_TRUE(set->train->read(2, record));
  EXPECT_EQ(record.label, 4);
  EXPECT_EQ(record.pixels, (Bytes{20, 21, 22, 23, 24, 25}));
  ASSERT_TRUE(set->test->read(1, record));
  EXPECT_EQ(record.label, 7);
  EXPECT_EQ(record.pixels, (Bytes{10, 11, 12, 13, 14, 15}));
}

TEST_F(IdxTest, RefusesWrongHeaders) {
  folder.write("train-images-idx3-ubyte", labels({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_THAT(refusal(), HasSubstr("begins with 00000801"));
  folder.write("train-images-idx3-ubyte", {0, 0, 8, 3, 0});
  EXPECT_THAT(refusal(), HasSubstr("less than its header"));
  folder.write("train-images-idx3-ubyte", big_endian({0x803, 0, 28, 28}));
  EXPECT_THAT(refusal(), HasSubstr("claims 0 records"));
  folder.write("train-images-idx3-ubyte", big_endian({0x803, 1, 100000, 1000}));
  EXPECT_THAT(refusal(), HasSubstr("claims 1 records of 100000 x 1000"));
}

TEST_F(IdxTest, RefusesWrongSizes) {
  folder.write("train-images-idx3-ubyte", images(3, 4));
  EXPECT_THAT(refusal(), HasSubstr("has 34 bytes where its header says 40"));
  folder.write("train-images-idx3-ubyte", images(5, 5));
  EXPECT_THAT(refusal(), HasSubstr("holds 5 images"));
  folder.write("train-images-idx3-ubyte", images(4, 4));
  folder.write("train-labels-idx1-ubyte", labels({3, 1, 10, 9}));
  EXPECT_THAT(refusal(), HasSubstr("label 10 of record 2"));
}

TEST_F(IdxTest, RefusesBrokenGzip) {
  Bytes packed = gzipped(images(2, 2));
  packed.erase(packed.end() - 9, packed.end());
  folder.write("t10k-images-idx3-ubyte.gz", packed);
  EXPECT_THAT(refusal(), HasSubstr("it ends too early"));
  packed = gzipped(images(2, 2));
  packed[packed.size() - 6] ^= 1;  // in the CRC
  folder.write("t10k-images-idx3-ubyte.gz", packed);
  EXPECT_THAT(refusal(), HasSubstr("incorrect data check"));
  folder.write("t10k-images-idx3-ubyte.gz", gzipped(images(3, 2)));
  EXPECT_THAT(refusal(), HasSubstr("more than its header"));
  folder.write("t10k-images-idx3-ubyte.gz", gzipped(images(1, 2)));
  EXPECT_THAT(refusal(), HasSubstr("less than its header"));
}

TEST_F(IdxTest, NamesTheFolderThatIsFull) {
  // A limit on file sizes stands in for a full disk: write() then fails in the same place.
  folder.write("t10k-images-idx3-ubyte.gz", gzipped(images(20000, 20000)));
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{65536, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = refusal();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, HasSubstr("set TMPDIR to a folder with space"));
}

TEST_F(IdxTest, NamesTheFolderThatIsMissing) {
  EXPECT_THAT(open_dataset("mnist:/nowhere").error().message, HasSubstr("/nowhere/train-images"));
}

}  // namespace
}  // namespace tri::data
