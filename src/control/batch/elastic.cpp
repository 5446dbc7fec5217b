#include "control/batch/elastic.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"

namespace tri::control {
namespace {

uint64_t share_of(double share, uint64_t bytes) {
  return static_cast<uint64_t>(share * static_cast<double>(bytes));
}

std::string use_text(const MemoryUse& use, std::string_view relation, double rho) {
  return fmt::format("{} in use, {} {:.0f} % of {}", base::format_bytes(use.used_bytes), relation,
                     100 * rho, base::format_bytes(use.ceiling_bytes));
}

}  // namespace

std::optional<int64_t> largest_fitting(const ElasticSettings& settings, int64_t from,
                                       uint64_t limit_bytes, const BytesOfBatch& plan) {
  int64_t high = std::max(from, settings.least);
  if (plan(high) <= limit_bytes) return high;
  int64_t low = settings.least;
  if (plan(low) > limit_bytes) return std::nullopt;
  const int64_t unit = settings.unit;  // least + a multiple of it from here on
  high = low + (high - low + unit - 1) / unit * unit;
  while (high - low > unit) {  // plan(low) fits, plan(high) does not
    const int64_t middle = low + (high - low) / unit / 2 * unit;
    (plan(middle) <= limit_bytes ? low : high) = middle;
  }
  return low;
}

std::optional<int64_t> least_micros(int64_t batch, int64_t unit, uint64_t limit_bytes,
                                    const std::function<uint64_t(int64_t micros)>& plan) {
  const int64_t pieces = batch / std::max<int64_t>(1, unit);
  for (int64_t micros = 1; micros <= pieces; ++micros) {
    if (pieces % micros == 0 && plan(micros) <= limit_bytes) return micros;
  }
  return std::nullopt;
}

BatchMove elastic_move(const ElasticSettings& settings, int64_t batch, int64_t& rest,
                       const MemoryUse& use, const BytesOfBatch& plan) {
  BatchMove stay{batch, ""};
  const bool resting = rest > 0;
  if (resting) --rest;
  if (use.ceiling_bytes == 0) return stay;
  const bool pressed = use.used_bytes > share_of(settings.rho_high, use.ceiling_bytes);
  if (pressed || use.rescued) {
    const int64_t smaller = std::max(settings.least, batch - settings.delta_down);
    if (smaller >= batch) return stay;
    rest = settings.rest_windows;
    return {largest_fitting(settings, smaller, use.ceiling_bytes, plan).value_or(settings.least),
            pressed ? use_text(use, "above", settings.rho_high)
                    : "a larger one fits only recomputed or in 8 bits"};
  }
  const int64_t bound = batch < settings.asked ? settings.asked : settings.most;
  const int64_t larger = std::min(bound, batch + settings.delta_up);
  if (resting || larger <= batch) return stay;
  const bool returns = larger <= settings.asked;
  const bool idle = use.used_bytes < share_of(settings.rho_low, use.ceiling_bytes);
  const bool worthless = settings.noise_scale && use.noise_scale.has_value() &&
                         *use.noise_scale < static_cast<double>(batch);
  if (!returns && (!idle || worthless)) return stay;
  const uint64_t bytes = plan(larger);
  if (bytes > share_of(settings.rho_high, use.ceiling_bytes)) return stay;
  if (idle) return {larger, use_text(use, "below", settings.rho_low)};
  return {larger, fmt::format("it needs {}, within {:.0f} % of {} again", base::format_bytes(bytes),
                              100 * settings.rho_high, base::format_bytes(use.ceiling_bytes))};
}

}  // namespace tri::control
