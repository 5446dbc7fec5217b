// Images made up on demand: coloured gratings. A class is an angle, a frequency and a colour,
// spread evenly over that space; phase, contrast, brightness and noise vary from image to image, so
// no single pixel tells the class but a small convolution net learns it in an epoch or two.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/philox.h"
#include "data/name_list.h"
#include "data/readers.h"

namespace tri::data {
namespace {

using std::numbers::pi;

struct Grating {
  double across = 0, down = 0;  // radians per pixel
  std::array<double, 3> colour = {};
};

// The R3 sequence (Roberts, 2018): any first k members fill the cube evenly, so classes stay as far
// apart as their number allows.
Grating class_grating(int64_t label, int64_t side) {
  constexpr double kRoot = 1.22074408460575947536;  // of x^4 = x + 1
  const auto part = [&](double power) {
    const double place = 0.5 + static_cast<double>(label + 1) / std::pow(kRoot, power);
    return place - std::floor(place);
  };
  // A quarter turn of angles: mirrored, no class becomes another. At most a cycle per 4 pixels.
  const double angle = part(1) * pi / 2;
  const double most = std::max(static_cast<double>(side) / 4, 1.0);
  const double cycles = std::min(1.5, most) + part(2) * (std::min(6.0, most) - std::min(1.5, most));
  const double hue = part(3) * 2 * pi;
  const double pitch = 2 * pi * cycles / static_cast<double>(side);
  return {pitch * std::cos(angle),
          pitch * std::sin(angle),
          {std::cos(hue), std::cos(hue - 2 * pi / 3), std::cos(hue + 2 * pi / 3)}};
}

class SyntheticSource final : public Source {
 public:
  // `part` tells the training set from the test set: the same classes, other images.
  SyntheticSource(SourceInfo info, uint64_t part) : Source(std::move(info)), part_(part) {
    for (int64_t label = 0; label < this->info().classes(); ++label) {
      gratings_.push_back(class_grating(label, this->info().shape.w));
    }
  }

  Result<void> read(uint64_t index, Record& record) const override {
    TRI_CHECK(index < info().count, "index = {}, count = {}", index, info().count);
    const auto side = static_cast<size_t>(info().shape.w);
    record.label = static_cast<int32_t>(index % gratings_.size());
    record.pixels.resize(3 * side * side);

    base::Stream random(kSeed, base::Purpose::kSynthetic, part_, index);
    const Grating& grating = gratings_[static_cast<size_t>(record.label)];
    const double phase = random.uniform() * 2 * pi;
    const double contrast = 45 + 30 * static_cast<double>(random.uniform());
    const double brightness = 112 + 32 * static_cast<double>(random.uniform());
    uint8_t* out = record.pixels.data();
    std::array<uint8_t, 16> noise;
    uint64_t block = 1;  // block 0 holds the numbers above
    size_t spent = noise.size();
    for (size_t y = 0; y < side; ++y) {
      // sin and cos of phase + down * y + across * x, turned on by one pixel per step.
      const double start = phase + grating.down * static_cast<double>(y);
      double sine = std::sin(start), cosine = std::cos(start);
      const double turn_sine = std::sin(grating.across), turn_cosine = std::cos(grating.across);
      for (size_t x = 0; x < side; ++x) {
        for (const double colour : grating.colour) {
          if (spent == noise.size()) {
            const base::Philox::Words words = random.block(block++);
            for (size_t i = 0; i < noise.size(); ++i) {
              noise[i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
            }
            spent = 0;
          }
          const double value =
              brightness + contrast * colour * sine + (noise[spent++] - 127.5) / 4;  // +- 32
          *out++ = static_cast<uint8_t>(std::clamp(value + 0.5, 0.0, 255.0));
        }
        const double next = sine * turn_cosine + cosine * turn_sine;
        cosine = cosine * turn_cosine - sine * turn_sine;
        sine = next;
      }
    }
    return {};
  }

 private:
  // Not the seed of the run: every run, and a later `eval`, shall see the same set.
  static constexpr uint64_t kSeed = 0x7269'6163'6365'6c00;
  uint64_t part_;
  std::vector<Grating> gratings_;
};

}  // namespace

Result<Parts> open_synthetic(const ReaderRequest& request) {
  // classes, pixels, count; the later ones may be left out
  std::array<int64_t, 3> numbers = {10, request.pixels > 0 ? request.pixels : 32, 10000};
  constexpr std::array<int64_t, 3> most = {1000, 4096, int64_t{1} << 40};
  const std::vector<std::string> fields = name_list(request.argument, ',');
  bool good = fields.size() <= numbers.size();
  for (size_t i = 0; good && i < fields.size(); ++i) {
    const char* end = fields[i].data() + fields[i].size();
    const auto [stop, error] = std::from_chars(fields[i].data(), end, numbers[i]);
    good = error == std::errc() && stop == end && numbers[i] >= (i == 0 ? 2 : 1) &&
           numbers[i] <= most[i];
  }
  if (!good) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("synthetic:{} is not CLASSES,PIXELS,COUNT with 2 to {}, 1 to {} "
                                  "and at least 1; write e.g. synthetic:10,32,10000",
                                  request.argument, most[0], most[1]));
  }
  SourceInfo info{.name = "synthetic",
                  .class_names = {},
                  .shape = {numbers[1], numbers[1], 3},
                  .count = static_cast<uint64_t>(numbers[2])};
  for (int64_t label = 0; label < numbers[0]; ++label) {
    info.class_names.push_back(fmt::format("grating {}", label));
  }
  SourceInfo test_info = info;
  test_info.count = std::max<uint64_t>(info.count / 5, 1);
  return Parts{std::make_shared<SyntheticSource>(std::move(info), 0),
               std::make_shared<SyntheticSource>(std::move(test_info), 1)};
}

}  // namespace tri::data
