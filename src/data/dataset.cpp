#include "data/dataset.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/permutation.h"
#include "data/readers.h"

namespace tri::data {
namespace {

struct Reader {
  std::string_view name;
  Result<Parts> (*open)(const ReaderRequest&);
  std::string_view fallback;
  ReaderHelp help;
};

constexpr Reader kReaders[] = {
#define TRI_READER(name, open, fallback, syntax, text) {name, open, fallback, {name, syntax, text}},
#include "data/reader_list.inc"
#undef TRI_READER
};

class SplitSource final : public Source {
 public:
  SplitSource(SourceInfo info, std::shared_ptr<const Source> parent, uint64_t first)
      : Source(std::move(info)),
        parent_(std::move(parent)),
        first_(first),
        order_(parent_->info().count, 0, 0) {}

  Result<void> read(uint64_t index, Record& record) const override {
    TRI_CHECK(index < info().count, "index = {}, count = {}", index, info().count);
    return parent_->read(order_(first_ + index), record);
  }
  Skipped skipped() const override { return parent_->skipped(); }

 private:
  std::shared_ptr<const Source> parent_;
  uint64_t first_;
  base::Permutation order_;
};

Result<Parts> open_parts(std::string_view spec, const OpenOptions& options) {
  const size_t colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  std::string known;
  for (const Reader& reader : kReaders) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", reader.help.syntax);
    if (reader.name != name) continue;
    ReaderRequest request{.argument = std::string(reader.fallback),
                          .pixels = options.pixels,
                          .decode_bytes = options.decode_bytes};
    if (colon != std::string_view::npos) request.argument = spec.substr(colon + 1);
    if (request.argument.empty()) {
      return unexpected(ErrorCode::kInvalid, fmt::format("--data {} lacks its argument; write {}",
                                                         spec, reader.help.syntax));
    }
    return reader.open(request);
  }
  return unexpected(ErrorCode::kInvalid,
                    fmt::format("--data {} is not known; choose one of {}", spec, known));
}

}  // namespace

const std::vector<ReaderHelp>& reader_help() {
  static const std::vector<ReaderHelp> help = [] {
    std::vector<ReaderHelp> lines;
    for (const Reader& reader : kReaders) lines.push_back(reader.help);
    return lines;
  }();
  return help;
}

std::shared_ptr<const Source> split_part(std::shared_ptr<const Source> parent, uint64_t first,
                                         uint64_t count) {
  SourceInfo info = parent->info();
  TRI_CHECK(count >= 1 && first + count <= info.count, "{} from {} of {}", count, first,
            info.count);
  info.count = count;
  return std::make_shared<SplitSource>(std::move(info), std::move(parent), first);
}

Result<Dataset> open_dataset(std::string_view spec, const OpenOptions& options) {
  if (!(options.val_split >= 0 && options.val_split < 1)) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("--val-split {} is not in [0, 1); give the share of the training "
                                  "set to hold out, such as 0.1",
                                  options.val_split));
  }
  const auto parts = open_parts(spec, options);
  if (!parts) return unexpected(parts.error());
  Dataset dataset{.train = parts->train, .validation = nullptr, .test = parts->test};
  const uint64_t count = dataset.train->info().count;
  if (options.val_split > 0) {
    const auto held =
        static_cast<uint64_t>(std::llround(static_cast<double>(count) * options.val_split));
    if (held == 0 || held == count) {
      return unexpected(ErrorCode::kInvalid,
                        fmt::format("--val-split {} of {} records leaves an empty part; choose "
                                    "another share",
                                    options.val_split, count));
    }
    dataset.validation = split_part(parts->train, 0, held);
    dataset.train = split_part(parts->train, held, count - held);
  }
  const uint64_t left = dataset.train->info().count;
  if (options.train_count > left) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("--train-count {} is more than the {} images to learn from; give "
                                  "fewer or leave it out",
                                  options.train_count, left));
  }
  if (options.train_count > 0) {
    dataset.train = split_part(dataset.train, 0, options.train_count);
  }
  if (!dataset.test && !dataset.validation) {
    return unexpected(
        ErrorCode::kInvalid,
        fmt::format("--data {} has neither val/ nor test/; add one or hold out a part "
                    "with --val-split 0.1",
                    spec));
  }
  return dataset;
}

}  // namespace tri::data
