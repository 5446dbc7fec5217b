#include "data/normalise.h"

#include <algorithm>
#include <cmath>

#include "data/source.h"

namespace tri::data {

Result<Normalisation> measure(const Source& source) {
  const SourceInfo& info = source.info();
  if (info.normalisation) return *info.normalisation;

  constexpr uint64_t kRecords = 512;  // at 32 pixels half a million values per channel
  const uint64_t records = std::min(kRecords, info.count);
  const auto channels = static_cast<size_t>(info.shape.c);
  std::vector<uint64_t> sum(channels), squares(channels);
  Record record;
  for (uint64_t i = 0; i < records; ++i) {
    TRI_TRY(source.read(i * info.count / records, record));
    for (size_t at = 0; at < record.pixels.size(); ++at) {
      const uint64_t value = record.pixels[at];
      sum[at % channels] += value;
      squares[at % channels] += value * value;
    }
  }

  Normalisation result;
  const double n = static_cast<double>(records) * static_cast<double>(info.shape.pixels());
  for (size_t c = 0; c < channels; ++c) {
    const double mean = static_cast<double>(sum[c]) / n;
    const double variance = static_cast<double>(squares[c]) / n - mean * mean;
    result.mean.push_back(static_cast<float>(mean / 255));
    // A channel that hardly varies must not be blown up: at least one grey level.
    result.deviation.push_back(static_cast<float>(std::sqrt(std::max(variance, 1.0)) / 255));
  }
  return result;
}

}  // namespace tri::data
