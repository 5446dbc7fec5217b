#pragma once
// Room: train. The outcome of a run in a few numbers: summary.json, and what `train --json` prints.
// In: plain values. Out: JSON, and back. Does not know how any of them was measured.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tri/result.h"

namespace tri::train {

enum class Status : uint8_t { kRunning, kDone, kInterrupted, kDiverged };
std::string_view name(Status status);

// An optional is null in the file until it is known, and where it is not finite.
struct Summary {
  std::string model, data, method;
  int64_t seed = 0;
  Status status = Status::kRunning;
  int64_t epochs = 0;  // finished
  uint64_t steps = 0, samples = 0;
  uint64_t params = 0;
  std::optional<double> test_accuracy, best_test_accuracy;  // in [0, 1]
  std::optional<double> train_loss;
  std::optional<double> epoch_seconds;  // mean of the last five epochs
  std::optional<double> images_per_second;
  uint64_t engine_peak_bytes = 0, process_peak_bytes = 0, ceiling_bytes = 0;
  struct Batch {
    int64_t first = 0, last = 0, min = 0, max = 0;
    bool operator==(const Batch&) const = default;
  } batch;
  struct Shares {  // of parameters, at the end; they add up to 1
    double fp32 = 0, bf16 = 0, fp16 = 0, fp8 = 0;
    bool operator==(const Shares&) const = default;
  } precision;
  double control_seconds = 0;
  uint64_t decisions = 0;                // changes that the control loop made
  std::optional<double> low_ratio = {};  // paper (c)'s, of its policies: see tri/plan.h
  uint64_t skipped_steps = 0;            // whose update was lost to values that were not finite

  bool operator==(const Summary&) const = default;
};

// Paper (a): test accuracy in % / (seconds of an epoch x engine peak in GB of 10^9 bytes). Nothing
// until all three are known and above zero.
std::optional<double> score(const Summary& summary);

std::string to_json(const Summary& summary);  // indented, ends with a newline
Result<Summary> parse_summary(std::string_view json, const std::string& source);

Result<void> write_summary(const std::string& path, const Summary& summary);
Result<Summary> read_summary(const std::string& path);

}  // namespace tri::train
