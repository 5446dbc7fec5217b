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

std::string line(std::string_view name, uint64_t bytes) {
  return fmt::format("\n  {:<28}{:>12}", name, base::format_bytes(bytes));
}

// The largest multiple of `unit` below `batch` whose need is within the ceiling; 0 if there is
// none.
int64_t largest_batch(int64_t batch, int64_t unit, uint64_t ceiling,
                      const std::function<std::optional<uint64_t>(int64_t)>& total_at) {
  int64_t fits = 0, too_many = batch / unit;
  while (too_many - fits > 1) {
    const int64_t middle = fits + (too_many - fits) / 2;
    const std::optional<uint64_t> total = total_at(middle * unit);
    (total && *total <= ceiling ? fits : too_many) = middle;
  }
  return fits * unit;
}

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

Result<void> check_fit(const Need& need, uint64_t ceiling, const exec::Forecast& forecast,
                       int64_t batch, int64_t batch_unit,
                       const std::function<std::optional<uint64_t>(int64_t)>& total_at) {
  if (need.total() <= ceiling) return {};
  std::string table = line("the process itself", need.base_bytes);
  for (const memory::Kind kind : memory::kKinds) {
    table += line(fmt::format("engine: {}", memory::name(kind)), forecast.by_kind[kind]);
  }
  table += line("engine: peak of these", need.engine_bytes);
  table += line("images read ahead", need.data_bytes);
  table += line("files and threads", need.pieces_bytes);
  table += line("all together", need.total());
  const int64_t fits = largest_batch(batch, batch_unit, ceiling, total_at);
  const std::string advice =
      fits > 0 ? fmt::format("--batch {} would fit", fits)
               : "no smaller batch fits either: choose a smaller model, --weights bf16+8, --state "
                 "int8 and --step fused, or a larger --memory";
  return unexpected(
      ErrorCode::kDoesNotFit,
      fmt::format("the run needs {} and --memory allows {}; {}{}", base::format_bytes(need.total()),
                  base::format_bytes(ceiling), advice, table));
}

}  // namespace tri::train
