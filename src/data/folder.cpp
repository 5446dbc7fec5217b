// Images in folders: DIR/train/CLASS/FILE and DIR/val/... or DIR/test/.... Classes are the folders
// of train/ in byte order. An image that cannot be decoded is skipped: its successor is given in
// its place and the loss is counted.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "data/data_file.h"
#include "data/image.h"
#include "data/readers.h"

namespace tri::data {
namespace {

namespace fs = std::filesystem;

// A million file names: one text and one number per name instead of a million strings.
struct Listing {
  std::string names;             // one after the other
  std::vector<uint64_t> ends;    // of each name in `names`
  std::vector<uint64_t> totals;  // images in classes 0..i
};

bool is_image_name(const std::string& name) {
  std::string end = fs::path(name).extension().string();
  std::transform(end.begin(), end.end(), end.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

// The names in a folder for which `wanted` holds, in byte order.
template <class F>
Result<std::vector<std::string>> sorted_names(const std::string& folder, F wanted) {
  std::error_code error;
  std::vector<std::string> names;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    if (wanted(*at)) names.push_back(at->path().filename().string());
  }
  if (error) {
    return unexpected(
        ErrorCode::kFailed,
        fmt::format("cannot list {}: {}; check the data directory", folder, error.message()));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<std::vector<std::string>> list_classes(const std::string& folder) {
  auto classes = sorted_names(folder, [](const fs::directory_entry& entry) {
    std::error_code ignored;
    return entry.is_directory(ignored) && entry.path().filename().string().front() != '.';
  });
  if (classes && classes->empty()) {
    return unexpected(
        ErrorCode::kFailed,
        fmt::format("{} holds no class folder; put images into {}/CLASS/", folder, folder));
  }
  return classes;
}

// REQUIRES: every one of `folder`'s own classes is among `classes`. Others may be missing there.
Result<Listing> list_images(const std::string& folder, const std::vector<std::string>& classes) {
  Listing listing;
  for (const std::string& name : classes) {
    const std::string place = folder + "/" + name;
    std::error_code ignored;
    if (fs::is_directory(place, ignored)) {
      const auto images = sorted_names(place, [](const fs::directory_entry& entry) {
        return is_image_name(entry.path().filename().string());
      });
      if (!images) return unexpected(images.error());
      if (images->empty()) {
        return unexpected(
            ErrorCode::kFailed,
            fmt::format("{} holds no PNG or JPEG image; add some or remove the folder", place));
      }
      for (const std::string& image : *images) {
        listing.names += image;
        listing.ends.push_back(listing.names.size());
      }
    }
    listing.totals.push_back(listing.ends.size());
  }
  return listing;
}

class FolderSource final : public Source {
 public:
  FolderSource(SourceInfo info, std::string folder, Listing listing, size_t decode_bytes)
      : Source(std::move(info)),
        folder_(std::move(folder)),
        listing_(std::move(listing)),
        decode_bytes_(decode_bytes) {}

  Result<void> read(uint64_t index, Record& record) const override {
    TRI_CHECK(index < info().count, "index = {}, count = {}", index, info().count);
    // So many bad images in a row are not a few broken files but the wrong folder.
    constexpr uint64_t kTries = 64;
    for (uint64_t step = 0; step < std::min(kTries, info().count); ++step) {
      const uint64_t candidate = (index + step) % info().count;
      if (known_bad(candidate)) continue;
      auto done = decode(candidate, record);
      if (done || done.error().code != ErrorCode::kInvalid) return done;
      const std::scoped_lock lock(mutex_);
      bad_.emplace(candidate, done.error().message);
    }
    const Skipped bad = skipped();
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} images of {} cannot be decoded ({}); check the folder",
                                  bad.count, folder_, bad.first_error));
  }

  Skipped skipped() const override {
    const std::scoped_lock lock(mutex_);
    return {bad_.size(), bad_.empty() ? "" : bad_.begin()->second};
  }

 private:
  bool known_bad(uint64_t index) const {
    const std::scoped_lock lock(mutex_);
    return bad_.contains(index);
  }

  Result<void> decode(uint64_t index, Record& record) const {
    const auto place = std::upper_bound(listing_.totals.begin(), listing_.totals.end(), index);
    const auto label = static_cast<size_t>(place - listing_.totals.begin());
    const uint64_t begin = index == 0 ? 0 : listing_.ends[index - 1];
    const auto file = File::open(
        fmt::format("{}/{}/{}", folder_, info().class_names[label],
                    std::string_view(listing_.names).substr(begin, listing_.ends[index] - begin)));
    if (!file) return unexpected(file.error());
    record.label = static_cast<int32_t>(label);
    return decode_image(*file, info().shape, decode_bytes_, record.pixels);
  }

  std::string folder_;
  Listing listing_;
  size_t decode_bytes_;
  mutable std::mutex mutex_;
  mutable std::map<uint64_t, std::string> bad_;
};

// The shorter side of the first image that can be read, at most ImageNet's 224.
int64_t natural_pixels(const std::string& folder, const std::vector<std::string>& classes) {
  constexpr int64_t kUsual = 224;
  const auto images = sorted_names(folder + "/" + classes.front(), [](const auto& entry) {
    return is_image_name(entry.path().filename().string());
  });
  if (!images) return kUsual;
  for (const std::string& image : *images) {
    const auto file = File::open(folder + "/" + classes.front() + "/" + image);
    if (!file) continue;
    const auto size = image_size(*file);
    if (size) return std::min({kUsual, size->width, size->height});
  }
  return kUsual;
}

Result<std::shared_ptr<const Source>> open_part(SourceInfo info, const std::string& folder,
                                                size_t decode_bytes) {
  const auto own_classes = list_classes(folder);
  if (!own_classes) return unexpected(own_classes.error());
  for (const std::string& name : *own_classes) {
    if (!std::binary_search(info.class_names.begin(), info.class_names.end(), name)) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("class {} of {} is not among the {} classes of train/; add it "
                                    "there or remove it",
                                    name, folder, info.classes()));
    }
  }
  auto listing = list_images(folder, info.class_names);
  if (!listing) return unexpected(listing.error());
  info.count = listing->ends.size();
  return std::shared_ptr<const Source>(
      std::make_shared<FolderSource>(std::move(info), folder, std::move(*listing), decode_bytes));
}

}  // namespace

Result<Parts> open_folder(const ReaderRequest& request) {
  const std::string train_folder = request.argument + "/train";
  auto classes = list_classes(train_folder);
  if (!classes) return unexpected(classes.error());
  const int64_t side = request.pixels > 0 ? request.pixels : natural_pixels(train_folder, *classes);
  SourceInfo info{.name = "folder",
                  .class_names = std::move(*classes),
                  .shape = {side, side, 3},
                  .augment = {.crop = static_cast<int>(side / 8), .flip = true}};
  auto train = open_part(info, train_folder, request.decode_bytes);
  if (!train) return unexpected(train.error());
  for (const char* name : {"/val", "/test"}) {
    std::error_code ignored;
    if (!fs::is_directory(request.argument + name, ignored)) continue;
    auto test = open_part(info, request.argument + name, request.decode_bytes);
    if (!test) return unexpected(test.error());
    return Parts{*train, *test};
  }
  return Parts{*train, nullptr};
}

}  // namespace tri::data
