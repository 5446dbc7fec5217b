// The training loop's part that says how it stands: warnings, the summary, the panel.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "memory/probes.h"
#include "train/training_loop.h"

namespace tri::train {

// A ceiling or a batch that leaves no room for the samples asked for.
Result<void> TrainingLoop::report_small_curvature() {
  const Config& config = parts_.config;
  const int64_t samples = parts_.engine.forecast().curvature_samples;
  if (config.curvature == Curvature::kOff || samples >= config.curvature_batch) return {};
  const int64_t step = parts_.engine.spec().samples;
  return warn(fmt::format(
      "curvature is measured on {} samples instead of {}: {}", samples, config.curvature_batch,
      samples == step ? "a step has no more"
                      : fmt::format("more would need more memory than a step of {} does", step)));
}

Result<void> TrainingLoop::report_skipped() {
  const data::Dataset& set = parts_.dataset;
  const data::Source* const parts[] = {set.train.get(),
                                       set.test.get()};  // the held-out part is of train
  for (size_t i = 0; i < std::size(parts); ++i) {
    const data::Skipped skipped = parts[i] == nullptr ? data::Skipped{} : parts[i]->skipped();
    if (skipped.count <= skipped_[i]) continue;
    skipped_[i] = skipped.count;
    TRI_TRY(
        warn(fmt::format("{} images could not be read and were replaced by others of the {} set; "
                         "the first: {}",
                         skipped.count, i == 0 ? "training" : "test", skipped.first_error)));
  }
  return {};
}

Summary TrainingLoop::summary(Status status) const {
  const Config& config = parts_.config;
  Summary result;
  result.model = config.model;
  result.data = config.data;
  result.method = name(config.method);
  result.seed = config.seed;
  result.status = status;
  result.epochs = state_.epochs;
  result.steps = state_.step;
  result.samples = state_.samples;
  result.params = static_cast<uint64_t>(parts_.engine.model().parameter_elements());
  result.test_accuracy = state_.test_accuracy;
  result.best_test_accuracy = state_.best_test_accuracy;
  result.train_loss = state_.train_loss;
  const std::vector<double>& epochs = state_.epoch_seconds;
  if (!epochs.empty()) {
    result.epoch_seconds =
        std::accumulate(epochs.begin(), epochs.end(), 0.0) / static_cast<double>(epochs.size());
  }
  result.images_per_second = state_.images_per_second;
  result.engine_peak_bytes = engine_peak();
  result.process_peak_bytes = process_peak();
  result.ceiling_bytes = state_.ceiling_bytes;
  const int64_t batch = state_.control.batch;
  result.batch = {batch, batch, batch, batch};
  if (state_.first_batch > 0) {
    result.batch = {state_.first_batch, batch, std::min(batch, state_.least_batch),
                    std::max(batch, state_.most_batch)};
  }
  const control::PrecisionShares shares = steering_.shares();
  result.precision = {shares.fp32, shares.bf16, shares.fp16, shares.fp8};
  result.control_seconds = state_.control_seconds;
  result.decisions = state_.control.changes;
  result.skipped_steps = state_.control.loss.skipped;
  result.low_ratio = steering_.low_ratio();
  return result;
}

PanelState TrainingLoop::panel_state() const {
  const Config& config = parts_.config;
  const uint64_t total = static_cast<uint64_t>(config.epochs) * epoch_samples_;
  const uint64_t inside = state_.samples % epoch_samples_;
  PanelState shown;
  shown.title = fmt::format("{} on {}, {}", config.model, config.data, name(config.method));
  shown.epoch = std::min(static_cast<int64_t>(state_.samples / epoch_samples_) + 1, config.epochs);
  shown.epochs = config.epochs;
  shown.epoch_share = static_cast<double>(inside) / static_cast<double>(epoch_samples_);
  shown.step = state_.step;
  shown.loss = last_loss_;
  shown.accuracy = state_.test_accuracy;
  shown.best_accuracy = state_.best_test_accuracy;
  shown.images_per_second = state_.train_seconds > 0
                                ? static_cast<double>(state_.counted) / state_.train_seconds
                                : state_.images_per_second.value_or(0);
  shown.memory_bytes = memory::Probes().resident().bytes.value_or(0);
  shown.ceiling_bytes = state_.ceiling_bytes;
  shown.batch = state_.control.batch;
  const control::PrecisionShares shares = steering_.shares();
  const PanelState::Share all[] = {
      {"fp32", shares.fp32}, {"bf16", shares.bf16}, {"fp16", shares.fp16}, {"fp8", shares.fp8}};
  std::ranges::copy_if(all, std::back_inserter(shown.precisions),
                       [](const PanelState::Share& one) { return one.share > 0; });
  if (state_.samples > first_samples_ && total > state_.samples) {
    shown.seconds_left = clock_.seconds() * static_cast<double>(total - state_.samples) /
                         static_cast<double>(state_.samples - first_samples_);
  }
  return shown;
}

}  // namespace tri::train
