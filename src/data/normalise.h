#pragma once
// Room: data. Per-channel statistics of pixel values, in units of the full range: v -> (v / 255 -
// mean) / deviation.
#include <cstdint>
#include <vector>

#include "tri/result.h"

namespace tri::data {

class Source;

struct Normalisation {
  std::vector<float> mean;       // one per channel
  std::vector<float> deviation;  // > 0
  bool operator==(const Normalisation&) const = default;
};

// The set's known statistics, or those of up to 512 records spread evenly over it. Sums are exact
// integers, so the answer is the same everywhere; a caller that resumes keeps it all the same, so
// that `predict` needs no training set.
Result<Normalisation> measure(const Source& source);

}  // namespace tri::data
