#include "train/ceiling.h"

#include <fmt/format.h>

#include <optional>

#include "base/bytes.h"
#include "base/thread_pool.h"

namespace tri::train {

Result<uint64_t> ceiling_bytes(const std::string& memory, const memory::Limits& limits) {
  TRI_ASSIGN(const base::Size size, base::parse_size(memory));
  if (size.kind == base::Size::Kind::kBytes) return size.bytes;
  const std::optional<size_t> least = limits.least();
  if (!least) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("--memory {} needs a known limit of memory, and the system "
                                  "tells none; give a size such as 1G",
                                  memory));
  }
  const double share = size.kind == base::Size::Kind::kAuto ? kAutoShare : size.fraction;
  return static_cast<uint64_t>(share * static_cast<double>(*least));
}

Result<uint64_t> process_base_bytes(size_t threads) {
  base::ThreadPool pool(threads);
  pool.run(threads, [](size_t, size_t) {});
  const memory::Reading held = memory::Probes().resident();
  if (!held.bytes) return unexpected(ErrorCode::kFailed, held.why_unknown);
  return *held.bytes;
}

}  // namespace tri::train
