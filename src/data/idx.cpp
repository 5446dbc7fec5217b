// The IDX format of MNIST (http://yann.lecun.com/exdb/mnist): big-endian magic 00 00 08 dims, one
// 32-bit size per dimension, then bytes. Images and labels come in separate files.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "data/data_file.h"
#include "data/gunzip.h"
#include "data/name_list.h"
#include "data/readers.h"

namespace tri::data {
namespace {

constexpr uint32_t kLabels = 0x00000801, kImages = 0x00000803;
constexpr uint32_t kMaxSide = 4096;  // keeps a record below 16 MiB whatever a header claims

struct IdxHeader {
  uint64_t count = 0;
  uint32_t rows = 1, columns = 1;
  uint64_t bytes = 0;  // of the header itself
  uint64_t record_bytes() const { return uint64_t{rows} * columns; }
  uint64_t file_bytes() const { return bytes + count * record_bytes(); }
};

uint32_t big_endian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

Result<IdxHeader> parse_header(std::span<const uint8_t> head, uint32_t magic,
                               const std::string& path) {
  IdxHeader header{.bytes = magic == kImages ? 16u : 8u};
  if (head.size() < header.bytes) {
    return unexpected(
        ErrorCode::kFailed,
        fmt::format("{} has {} bytes, less than its header; fetch it again", path, head.size()));
  }
  if (const uint32_t seen = big_endian(head.data()); seen != magic) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} begins with {:08x} where IDX {} begin with {:08x}; it is "
                                  "another file or corrupt",
                                  path, seen, magic == kImages ? "images" : "labels", magic));
  }
  header.count = big_endian(head.data() + 4);
  if (magic == kImages) {
    header.rows = big_endian(head.data() + 8);
    header.columns = big_endian(head.data() + 12);
  }
  if (header.count == 0 || header.rows == 0 || header.columns == 0 || header.rows > kMaxSide ||
      header.columns > kMaxSide) {
    return unexpected(
        ErrorCode::kFailed,
        fmt::format("{} claims {} records of {} x {}; at least one, of 1 to {} pixels "
                    "a side, is needed",
                    path, header.count, header.rows, header.columns, kMaxSide));
  }
  return header;
}

struct IdxFile {
  File file;
  IdxHeader header;
};

// Opens `stem` or `stem`.gz, whichever is there.
Result<IdxFile> open_idx(const std::string& stem, uint32_t magic) {
  auto file = File::open(stem);
  if (!file) file = File::open(stem + ".gz");
  if (!file) {
    return unexpected(
        ErrorCode::kFailed,
        fmt::format("neither {0} nor {0}.gz can be opened; name the folder that holds "
                    "the IDX files",
                    stem));
  }
  if (is_gzip(*file)) {
    const auto size_of = [&](std::span<const uint8_t> head) -> Result<uint64_t> {
      const auto header = parse_header(head, magic, file->path());
      if (!header) return unexpected(header.error());
      return header->file_bytes();
    };
    file = gunzip(*file, size_of);
    if (!file) return unexpected(file.error());
  }
  std::array<uint8_t, 16> head;
  const auto got = file->read_some(0, head);
  if (!got) return unexpected(got.error());
  const auto header = parse_header({head.data(), *got}, magic, file->path());
  if (!header) return unexpected(header.error());
  if (file->size() != header->file_bytes()) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} has {} bytes where its header says {}; it is truncated or "
                                  "corrupt, fetch it again",
                                  file->path(), file->size(), header->file_bytes()));
  }
  return IdxFile{std::move(*file), *header};
}

class IdxSource final : public Source {
 public:
  IdxSource(SourceInfo info, IdxFile images, IdxFile labels)
      : Source(std::move(info)), images_(std::move(images)), labels_(std::move(labels)) {}

  Result<void> read(uint64_t index, Record& record) const override {
    TRI_CHECK(index < info().count, "index = {}, count = {}", index, info().count);
    uint8_t label = 0;
    TRI_TRY(labels_.file.read(labels_.header.bytes + index, {&label, 1}));
    if (label >= info().classes()) {
      return unexpected(
          ErrorCode::kFailed,
          fmt::format("label {} of record {} in {} is not below {}; the file is not "
                      "{} or is corrupt",
                      label, index, labels_.file.path(), info().classes(), info().name));
    }
    record.label = label;
    const uint64_t size = images_.header.record_bytes();
    record.pixels.resize(size);
    return images_.file.read(images_.header.bytes + index * size, record.pixels);
  }

  // Labels are few bytes: better to refuse them now than in the middle of a run.
  Result<void> check_labels() const {
    std::vector<uint8_t> chunk(64 << 10);
    for (uint64_t at = 0; at < info().count; at += chunk.size()) {
      chunk.resize(std::min<uint64_t>(chunk.size(), info().count - at));
      TRI_TRY(labels_.file.read(labels_.header.bytes + at, chunk));
      for (size_t i = 0; i < chunk.size(); ++i) {
        Record record;
        if (chunk[i] >= info().classes()) return read(at + i, record);
      }
    }
    return {};
  }

 private:
  IdxFile images_, labels_;
};

Result<std::shared_ptr<const Source>> open_part(SourceInfo info, const std::string& stem) {
  auto images = open_idx(stem + "-images-idx3-ubyte", kImages);
  if (!images) return unexpected(images.error());
  auto labels = open_idx(stem + "-labels-idx1-ubyte", kLabels);
  if (!labels) return unexpected(labels.error());
  if (images->header.count != labels->header.count) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} holds {} images but {} holds {} labels; fetch both again",
                                  images->file.path(), images->header.count, labels->file.path(),
                                  labels->header.count));
  }
  info.count = images->header.count;
  info.shape = {images->header.rows, images->header.columns, 1};
  const auto source =
      std::make_shared<IdxSource>(std::move(info), std::move(*images), std::move(*labels));
  TRI_TRY(source->check_labels());
  return std::shared_ptr<const Source>(source);
}

Result<Parts> open_both(const SourceInfo& info, const std::string& folder) {
  auto train = open_part(info, folder + "/train");
  if (!train) return unexpected(train.error());
  auto test = open_part(info, folder + "/t10k");
  if (!test) return unexpected(test.error());
  if ((*train)->info().shape != (*test)->info().shape) {
    return unexpected(
        ErrorCode::kFailed,
        fmt::format("training images in {} are {} but test images {}; they do not "
                    "belong together",
                    folder, (*train)->info().shape.text(), (*test)->info().shape.text()));
  }
  return Parts{*train, *test};
}

}  // namespace

Result<Parts> open_mnist(const ReaderRequest& request) {
  return open_both({.name = "mnist",
                    .class_names = name_list("0 1 2 3 4 5 6 7 8 9"),
                    .normalisation = Normalisation{{0.1307f}, {0.3081f}},
                    .augment = {.crop = 2}},  // a mirrored digit is another sign
                   request.argument);
}

Result<Parts> open_fashion_mnist(const ReaderRequest& request) {
  return open_both({.name = "fashion-mnist",
                    .class_names = name_list("T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,"
                                             "Shirt,Sneaker,Bag,Ankle boot",
                                             ','),
                    .normalisation = Normalisation{{0.2860f}, {0.3530f}},
                    .augment = {.crop = 2, .flip = true}},
                   request.argument);
}

}  // namespace tri::data
