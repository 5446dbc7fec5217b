// The binary versions of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html): no
// header; a record is one or two label bytes, then the red, green and blue planes of 32 x 32.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/check.h"
#include "data/data_file.h"
#include "data/name_list.h"
#include "data/readers.h"

namespace tri::data {
namespace {

constexpr size_t kSide = 32;
constexpr size_t kPlane = kSide * kSide;

constexpr std::string_view kNames10 = "airplane automobile bird cat deer dog frog horse ship truck";
constexpr std::string_view kNames100 =
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus "
    "butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch "
    "crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo "
    "keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse "
    "mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy "
    "porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper "
    "snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television "
    "tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm";

// How the two versions differ.
struct Layout {
  std::string_view name, subfolder, class_names;
  size_t label_bytes;  // the last one is read: with two, it is the fine label
  Normalisation normalisation;
};

class CifarSource final : public Source {
 public:
  // `ends[i]`: the number of records in files 0..i.
  CifarSource(SourceInfo info, size_t label_bytes, std::vector<File> files,
              std::vector<uint64_t> ends)
      : Source(std::move(info)),
        label_bytes_(label_bytes),
        files_(std::move(files)),
        ends_(std::move(ends)) {}

  Result<void> read(uint64_t index, Record& record) const override {
    TRI_CHECK(index < info().count, "index = {}, count = {}", index, info().count);
    const auto place = std::upper_bound(ends_.begin(), ends_.end(), index);
    const File& file = files_[static_cast<size_t>(place - ends_.begin())];
    const uint64_t row = index - (place == ends_.begin() ? 0 : *(place - 1));

    std::array<uint8_t, 2 + 3 * kPlane> bytes;
    const size_t size = label_bytes_ + 3 * kPlane;
    TRI_TRY(file.read(row * size, {bytes.data(), size}));
    record.label = bytes[label_bytes_ - 1];
    if (record.label >= info().classes()) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("label {} of record {} in {} is not below {}; the file is not "
                                    "{} or is corrupt",
                                    record.label, row, file.path(), info().classes(), info().name));
    }
    record.pixels.resize(3 * kPlane);
    const uint8_t* planes = bytes.data() + label_bytes_;
    for (size_t i = 0; i < kPlane; ++i) {
      for (size_t c = 0; c < 3; ++c) record.pixels[3 * i + c] = planes[c * kPlane + i];
    }
    return {};
  }

 private:
  size_t label_bytes_;
  std::vector<File> files_;
  std::vector<uint64_t> ends_;
};

Result<std::shared_ptr<const Source>> open_part(const Layout& layout, const std::string& folder,
                                                const std::vector<std::string>& names) {
  std::vector<File> files;
  std::vector<uint64_t> ends;
  uint64_t count = 0;
  const uint64_t record_bytes = layout.label_bytes + 3 * kPlane;
  for (const std::string& name : names) {
    auto file = File::open(folder + "/" + name);
    if (!file) return unexpected(file.error());
    if (file->size() == 0 || file->size() % record_bytes != 0) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("{} has {} bytes, not a whole number of {}-byte records; it is "
                                    "truncated or not the binary version, fetch it again",
                                    file->path(), file->size(), record_bytes));
    }
    count += file->size() / record_bytes;
    ends.push_back(count);
    files.push_back(std::move(*file));
  }
  SourceInfo info{.name = std::string(layout.name),
                  .class_names = name_list(layout.class_names),
                  .shape = {kSide, kSide, 3},
                  .count = count,
                  .normalisation = layout.normalisation,
                  .augment = {.crop = 4, .flip = true}};
  return std::shared_ptr<const Source>(std::make_shared<CifarSource>(
      std::move(info), layout.label_bytes, std::move(files), std::move(ends)));
}

Result<Parts> open_cifar(const Layout& layout, const std::string& folder,
                         const std::vector<std::string>& train_files,
                         const std::string& test_file) {
  std::error_code ignored;
  const std::string inner = folder + "/" + std::string(layout.subfolder);
  const std::string& place = std::filesystem::is_directory(inner, ignored) ? inner : folder;
  auto train = open_part(layout, place, train_files);
  if (!train) return unexpected(train.error());
  auto test = open_part(layout, place, {test_file});
  if (!test) return unexpected(test.error());
  return Parts{*train, *test};
}

}  // namespace

Result<Parts> open_cifar10(const ReaderRequest& request) {
  const Layout layout{"cifar10",
                      "cifar-10-batches-bin",
                      kNames10,
                      1,
                      {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}}};
  return open_cifar(layout, request.argument,
                    {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                     "data_batch_5.bin"},
                    "test_batch.bin");
}

Result<Parts> open_cifar100(const ReaderRequest& request) {
  const Layout layout{"cifar100",
                      "cifar-100-binary",
                      kNames100,
                      2,
                      {{0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}}};
  return open_cifar(layout, request.argument, {"train.bin"}, "test.bin");
}

}  // namespace tri::data
