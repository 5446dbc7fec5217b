#pragma once
// Room: train. The loop over steps: batches in, updates, evaluations, checkpoints and events out.
// In: everything a run holds, made by the session. Out: a summary, and why it ended. What it does
// depends on RunState alone, so that a run continues from a snapshot as if it had never stopped;
// clocks decide only when to save and what to show.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "exec/engine.h"
#include "metrics/jsonl_writer.h"
#include "train/ceiling_record.h"
#include "train/ceiling_watch.h"
#include "train/evaluation.h"
#include "train/panel.h"
#include "train/run_directory.h"
#include "train/run_state.h"
#include "train/schedule.h"
#include "train/steering.h"
#include "train/summary.h"
#include "tri/config.h"
#include "tri/result.h"

namespace tri::train {

struct LoopParts {
  const Config& config;  // resolved
  const RunDirectory& directory;
  const data::Dataset& dataset;
  const data::Augment& augment;
  const control::Governor& governor;
  const StepPricing& pricing;
  exec::Engine& engine;  // planned as the state says
  base::ThreadPool& pool;
  metrics::JsonlWriter& events;
  Panel& panel;
  const CeilingRecord* repeats = nullptr;  // null: the world moves the ceiling
};

struct LoopEnd {
  Summary summary;
  std::optional<Error> stopped;
};

class TrainingLoop {
 public:
  TrainingLoop(const LoopParts& parts, RunState state);

  // A run that begins saves its first checkpoint, so that it can be resumed from then on.
  // `opening`: a decision that was made before, for the events.
  Result<LoopEnd> run(const std::optional<metrics::Fields>& opening);

  // Says something unusual on the panel and in the events.
  Result<void> warn(const std::string& text);

 private:
  struct Verdict {
    Judgement judged, tested;
    bool best;  // of the run so far
  };
  Result<LoopEnd> drive();
  bool finished() const;
  bool epoch_is_over() const;
  Result<void> step();
  Result<const exec::StepReport*> train_batch();
  Result<void> steer(const exec::StepReport& report);
  void measure_curvature();
  std::span<std::byte> free_ring();  // ends what uses it
  void begin_loading();
  void note_loss(const exec::StepReport& report);
  Result<Verdict> judge();
  Result<void> end_epoch();
  Result<void> save(bool best);
  Result<void> save_if_due();
  Result<LoopEnd> finish();
  Result<LoopEnd> stop(Status status, std::optional<Error> why);
  Result<void> write(metrics::EventKind kind, metrics::Fields fields);
  // Within a step: a disk that is full shall find weights and state in agreement.
  void defer(metrics::EventKind kind, metrics::Fields fields);
  Result<void> write_deferred();
  double seconds() const { return before_seconds_ + clock_.seconds(); }

  // loop_ceiling.cpp
  Result<void> follow_ceiling();
  uint64_t process_peak() const;  // of all processes of the run, whatever was reset
  uint64_t engine_peak() const;   // likewise
  Result<void> report_small_ghost();

  // loop_report.cpp
  Result<void> report_small_curvature();
  Result<void> report_skipped();
  Summary summary(Status status) const;
  PanelState panel_state() const;

  LoopParts parts_;
  RunState state_;
  const uint64_t epoch_samples_;
  const Schedule schedule_;
  const uint64_t first_samples_;  // of this process
  const double before_seconds_;
  base::Stopwatch clock_, since_saved_;
  std::optional<uint64_t> saved_step_;
  Steering steering_;  // of state_
  std::vector<std::byte> ring_;
  std::optional<data::Loader> loader_;
  // Spent on data by this process: in the last step, and in all since the last evaluation.
  data::LoaderSeconds step_data_, epoch_data_;
  double rate_ = 0;
  // Within a step, or between two epochs: weights, statistics and state do not agree.
  bool midway_ = false;
  std::vector<metrics::Event> deferred_;
  uint64_t steps_here_ = 0;  // of this process
  std::optional<double> last_loss_;
  CeilingWatch watch_;
  std::optional<RecordedCeilings> recorded_;  // instead of watching
  int64_t ghost_;                             // as last said
  uint64_t peak_before_ = 0;                  // of the process, before VmHWM was last reset
  uint64_t skipped_[2] = {};                  // images, as last said: of train, of test
};

}  // namespace tri::train
