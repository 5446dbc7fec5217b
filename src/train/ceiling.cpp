#include "train/ceiling.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace tri::train {
namespace {

constexpr double kAutoShare = 0.9;
// Stacks of the threads, the panel, the metrics, pieces of files: measured below 3 MiB.
constexpr uint64_t kSmallThings = uint64_t{13} << 18;

}  // namespace

Result<uint64_t> ceiling_bytes(const std::string& text, const memory::Probes& probes) {
  TRI_ASSIGN(const base::Size size, base::parse_size(text));
  if (size.kind == base::Size::Kind::kBytes) return size.bytes;
  const std::optional<size_t> least = probes.limits().least();
  if (!least) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("--memory {} needs a limit of the machine and none can be read; "
                                  "give a size such as 1G",
                                  text));
  }
  const double share = size.kind == base::Size::Kind::kFraction ? size.fraction : kAutoShare;
  return static_cast<uint64_t>(share * static_cast<double>(*least));
}

uint64_t pieces_bytes(const exec::Parameters& parameters) {
  // In PyTorch's order and in ours, and as the file wants it.
  return 3 * parameters.largest_piece() * sizeof(float) + kSmallThings;
}

uint64_t decode_bytes(const std::string& data, uint64_t ceiling) {
  constexpr uint64_t kLeast = uint64_t{1} << 20, kMost = uint64_t{32} << 20;
  return data.starts_with("folder:") ? std::clamp(ceiling / 16, kLeast, kMost) : 0;
}

Error does_not_fit(const Need& need, uint64_t ceiling, const std::string& advice) {
  const auto text = [](uint64_t bytes) { return base::format_bytes(bytes); };
  return {
      ErrorCode::kDoesNotFit,
      fmt::format("the run needs {} (the process itself {}, the engine {}, images read ahead {}, "
                  "files, decoders and threads {}) and --memory allows {}; {}",
                  text(need.total()), text(need.base_bytes), text(need.engine_bytes),
                  text(need.data_bytes), text(need.pieces_bytes), text(ceiling), advice)};
}

}  // namespace tri::train
