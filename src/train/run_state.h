#pragma once
// Room: train. All that a run knows besides its weights: state.json of a checkpoint. In: plain
// values. Out: JSON, and back to the same bits. A run that starts from it repeats every decision;
// `eval` and `predict` learn from it how the network is built and fed.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control/governor.h"
#include "data/normalise.h"
#include "ops/kernel_choice.h"
#include "tensor/shape.h"
#include "tri/config.h"
#include "tri/result.h"

namespace tri::train {

// How to build the network again and what to show it.
struct ModelCard {
  std::string model;
  double width = 1;
  tensor::Shape image;
  std::vector<std::string> class_names;
  std::string data;  // the value of --data
  double val_split = 0;
  std::string weights;            // the value of --weights
  control::PrecisionTable table;  // the formats it works in; empty: fp32
  data::Normalisation normalisation;
  std::vector<ops::Kernels> kernels;  // chosen by --tune, by layer; empty: as shapes say

  bool operator==(const ModelCard&) const = default;
};

struct RunState {
  uint64_t step = 0;
  uint64_t samples = 0;  // position in the stream
  double seconds = 0;    // of the run so far
  int64_t seed = 0;
  std::string simd_target;
  uint32_t config_crc = 0;  // of what a resumed run may not change; see config_crc()

  // Since the last evaluation.
  double loss_sum = 0;
  int64_t correct = 0;
  uint64_t counted = 0;  // samples
  double train_seconds = 0;

  // As of the last evaluation.
  int64_t epochs = 0;
  std::optional<double> train_loss, test_accuracy, best_test_accuracy;
  std::optional<double> best_judged;  // highest accuracy of what epochs are judged by
  int64_t epochs_since_best = 0;
  std::vector<double> epoch_seconds;  // of the last five
  std::optional<double> images_per_second;

  // Since the last `step` event.
  double window_loss = 0;
  uint64_t window_steps = 0;

  uint64_t ceiling_bytes = 0;   // that holds now
  uint64_t asked_bytes = 0;     // by --memory or `set`; more while other programs press
  uint64_t request_serial = 0;  // of the last `set` that was met
  uint64_t engine_peak_bytes = 0, process_peak_bytes = 0;  // of all its processes
  uint64_t base_bytes = 0;  // what the process held before the engine took its memory

  uint64_t norm_batches = 0;  // over which running statistics were taken, in each batch norm
  double gradient_norm = 0;   // of the last step that was not lost
  int64_t first_batch = 0, least_batch = 0, most_batch = 0;  // of the steps so far; 0: none
  double control_seconds = 0;  // spent on signals, decisions and new plans
  control::GovernorState control;

  ModelCard card;

  bool operator==(const RunState&) const = default;
};

std::string to_json(const RunState& state);
// `source` stands for the text in messages. Fails with kFailed.
Result<RunState> parse_state(std::string_view json, const std::string& source);

// Of the configuration without what may differ between the parts of one run: threads, memory,
// max-steps, save-every, out, and where the files of a data set lie.
uint32_t config_crc(const Config& config);

}  // namespace tri::train
