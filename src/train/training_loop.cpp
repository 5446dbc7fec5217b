#include "train/training_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "base/check.h"
#include "memory/probes.h"
#include "train/control_codec.h"
#include "train/engine_options.h"
#include "train/governing.h"
#include "train/interrupt.h"
#include "train/snapshot.h"
#include "train/trace.h"

namespace tri::train {
namespace {

using metrics::EventKind;
using metrics::Fields;

constexpr size_t kEpochsAveraged = 5;

Fields fields_of(std::string_view key, std::optional<double> value) {
  return value ? Fields{{key, *value}} : Fields{};
}

// {LAYER: {"forward": "winograd", "backward": ...}}
Fields kernel_fields(std::span<const exec::LayerForecast> layers) {
  Fields fields;
  for (const exec::LayerForecast& layer : layers)
    fields.add(layer.name, Fields{{"forward", ops::name(layer.kernels.forward)},
                                  {"backward", ops::name(layer.kernels.backward)}});
  return fields;
}

}  // namespace

TrainingLoop::TrainingLoop(const LoopParts& parts, RunState state)
    : parts_(parts),
      state_(std::move(state)),
      epoch_samples_(parts.dataset.train->info().count),
      schedule_(make_schedule(parts.config, epoch_samples_)),
      first_samples_(state_.samples),
      before_seconds_(state_.seconds),
      steering_(parts_.config, parts_.governor, parts_.pricing, parts_.engine, state_),
      watch_(RequestReader(parts_.directory.control(), state_.request_serial), memory::Probes(),
             state_.asked_bytes, state_.ceiling_bytes),
      ghost_(*parts.config.ghost_batch) {
  if (state_.step > 0) saved_step_ = state_.step;
  if (parts.repeats != nullptr) recorded_.emplace(parts.repeats->moves);
}

bool TrainingLoop::finished() const {
  const Config& config = parts_.config;
  return state_.samples >= static_cast<uint64_t>(config.epochs) * epoch_samples_ ||
         (config.max_steps && state_.step >= static_cast<uint64_t>(*config.max_steps)) ||
         (config.patience && state_.epochs_since_best >= *config.patience);
}

bool TrainingLoop::epoch_is_over() const {
  return static_cast<int64_t>(state_.samples / epoch_samples_) > state_.epochs;
}

Result<LoopEnd> TrainingLoop::run(const std::optional<Fields>& opening) {
  const Config& config = parts_.config;
  Fields start{{"model", config.model},
               {"data", config.data},
               {"method", name(config.method)},
               {"seed", config.seed},
               {"batch", state_.control.batch},
               {"epoch_samples", epoch_samples_},
               {"resumed", state_.step > 0},
               {"simd_target", state_.simd_target},
               {"engine_peak_bytes", parts_.engine.forecast().engine_peak_bytes},
               {"process_plan_bytes", parts_.pricing.bytes_now()},
               {"base_bytes", state_.base_bytes},
               {"ceiling_bytes", state_.ceiling_bytes},
               {"precision", table_fields(table_of(parts_.engine.spec().formats),
                                          parts_.governor.layers(), state_word(parts_.config))}};
  if (!state_.card.kernels.empty())
    start.add("kernels", kernel_fields(parts_.engine.forecast().layers));
  TRI_TRY(write(EventKind::kStart, std::move(start)));
  if (opening) TRI_TRY(write(EventKind::kControl, *opening));
  TRI_TRY(report_small_ghost());
  TRI_TRY(report_small_curvature());
  TRI_TRY(write_summary(parts_.directory.summary(), summary(Status::kRunning)));
  if (!saved_step_) TRI_TRY(save(false));
  Result<LoopEnd> end = drive();
  if (!end) {
    // Between two steps weights and state agree and are worth keeping; within one they do not.
    if (!midway_ && saved_step_ != state_.step) (void)save(false);
    (void)stop(Status::kInterrupted, end.error());
  }
  return end;
}

Result<LoopEnd> TrainingLoop::drive() {
  if (epoch_is_over()) TRI_TRY(end_epoch());  // the one that an error left unjudged
  while (!finished()) {
    if (const int signal = interrupt_signal(); signal != 0) {
      TRI_TRY(save(false));
      const bool by_user = signal == SIGINT;
      return stop(
          Status::kInterrupted,
          Error{by_user ? ErrorCode::kInterrupted : ErrorCode::kTerminated,
                fmt::format("stopped by {} after step {}; continue with 'triaccel train "
                            "--resume {}'",
                            by_user ? "SIGINT" : "SIGTERM", state_.step, parts_.directory.path)});
    }
    TRI_TRY(follow_ceiling());
    TRI_TRY(step());
    if (steering_.diverged()) {
      return stop(
          Status::kDiverged,
          Error{ErrorCode::kDiverged,
                fmt::format("{} steps in a row were lost, up to step {}, as {} not finite; start "
                            "again with --init {} and a --lr below {} or a longer --warmup",
                            state_.control.failures, state_.step, steering_.lost_values(),
                            parts_.directory.path, *parts_.config.lr)});
    }
    if (epoch_is_over()) TRI_TRY(end_epoch());
    TRI_TRY(save_if_due());
  }
  return finish();
}

// As large as a micro-batch needs it, now.
std::span<std::byte> TrainingLoop::free_ring() {
  loader_.reset();
  const size_t bytes = ring_bytes(parts_.dataset, parts_.engine.spec().samples);
  if (ring_.size() != bytes) {
    ring_ = {};  // not both at once
    ring_.resize(bytes);
  }
  return ring_;
}

void TrainingLoop::begin_loading() {
  const std::span<std::byte> ring = free_ring();
  loader_.emplace(
      parts_.dataset.train,
      data::SampleOrder::shuffled(epoch_samples_, static_cast<uint64_t>(parts_.config.seed)),
      data::LoaderOptions{.shape = parts_.engine.model().input_shape(),
                          .normalisation = state_.card.normalisation,
                          .augment = parts_.augment,
                          .seed = static_cast<uint64_t>(parts_.config.seed),
                          .position = state_.samples,
                          .capacity = static_cast<size_t>(parts_.engine.spec().samples)},
      ring, parts_.pool);
}

Result<const exec::StepReport*> TrainingLoop::train_batch() {
  const exec::StepSpec& spec = parts_.engine.spec();
  const exec::StepReport* report = nullptr;
  const data::LoaderSeconds before = loader_->seconds();
  for (int64_t micro = 0; micro < spec.micros; ++micro) {
    const exec::BatchRoom room = parts_.engine.batch(0);
    TRI_TRY(loader_->take(room.labels.size(), {room.x, room.labels, room.samples}));
    midway_ = true;
    if (micro == 0) {
      measure_curvature();
      steering_.set_rates(rate_);
    }
    report = &parts_.engine.train(
        0, {state_.step + 1, steering_.loss_scale(), micro, steering_.lost_steps()}, parts_.pool);
  }
  step_data_ = {loader_->seconds().waiting - before.waiting,
                loader_->seconds().finishing - before.finishing};
  epoch_data_.waiting += step_data_.waiting;
  epoch_data_.finishing += step_data_.finishing;
  return report;
}

void TrainingLoop::measure_curvature() {
  if (!steering_.curvature_due()) return;
  const base::Stopwatch spent;
  const exec::CurvatureReport& report = parts_.engine.curvature(0, state_.step, parts_.pool);
  Fields event = steering_.note_curvature(report, rate_);
  const double seconds = spent.seconds();
  state_.control_seconds += seconds;
  event.add("curvature_seconds", seconds);
  defer(EventKind::kCurvature, std::move(event));
}

Result<void> TrainingLoop::step() {
  const base::Stopwatch spent;
  if (!loader_) begin_loading();
  rate_ = schedule_.rate(state_.samples, state_.control.batch);
  TRI_ASSIGN(const exec::StepReport* const report, train_batch());
  const exec::StepSpec& spec = parts_.engine.spec();
  if (state_.first_batch == 0) state_.first_batch = state_.least_batch = spec.batch();
  state_.least_batch = std::min(state_.least_batch, spec.batch());
  state_.most_batch = std::max(state_.most_batch, spec.batch());
  ++state_.step;
  state_.samples += static_cast<uint64_t>(spec.batch());
  state_.norm_batches +=
      static_cast<uint64_t>(spec.micros * (spec.ghost > 0 ? spec.samples / spec.ghost : 1));
  note_loss(*report);
  TRI_TRY(steer(*report));
  state_.train_seconds += spent.seconds();
  midway_ = false;
  TRI_TRY(write_deferred());
  TRI_TRY(report_small_ghost());
  // The second step of this process, where there is one: the first meets cold caches.
  if (!parts_.config.profile.empty() && ++steps_here_ <= 2) {
    const Result<void> traced = write_trace(parts_.config.profile, parts_.engine);
    if (!traced) TRI_TRY(warn(traced.error().message));
  }
  if (const int64_t now = base::now_ns(); parts_.panel.due(now)) {
    parts_.panel.update(panel_state(), now);
  }
  return {};
}

void TrainingLoop::note_loss(const exec::StepReport& report) {
  const auto batch = static_cast<uint64_t>(state_.control.batch);
  const double loss = report.loss.loss / static_cast<double>(batch);
  last_loss_ = loss;
  ++state_.window_steps;
  state_.window_loss += loss;
  if (std::isfinite(loss)) {
    state_.loss_sum += report.loss.loss;
    state_.correct += report.loss.top1;
    state_.counted += batch;
  } else {
    const std::string text = fmt::format("step {}: the loss is not finite", state_.step);
    parts_.panel.note("warning: " + text);
    defer(EventKind::kWarning, Fields{{"message", text}});
  }
  if (state_.step % static_cast<uint64_t>(parts_.config.control_every) != 0) return;
  const exec::PhaseSeconds phases = parts_.engine.phases();
  defer(EventKind::kStep,
        Fields{{"loss", state_.window_loss / static_cast<double>(state_.window_steps)},
               {"lr", rate_},
               {"batch", state_.control.batch},
               {"loss_scale", state_.control.loss.scale},
               {"skipped_steps", state_.control.loss.skipped},
               {"engine_peak_bytes", engine_peak()},
               {"process_plan_bytes", parts_.pricing.bytes_now()},
               {"rss_bytes", memory::Probes().resident().bytes.value_or(0)},
               {"ceiling_bytes", state_.ceiling_bytes},
               {"data_seconds", step_data_.waiting + step_data_.finishing},
               {"data_wait_seconds", step_data_.waiting},
               {"forward_seconds", phases.forward},
               {"backward_seconds", phases.backward},
               {"update_seconds", phases.update}});
  state_.window_loss = 0;
  state_.window_steps = 0;
}

Result<void> TrainingLoop::steer(const exec::StepReport& report) {
  const base::Stopwatch spent;
  const int64_t samples = parts_.engine.spec().samples;
  TRI_ASSIGN(const std::vector<Fields> events, steering_.after_step(report, rate_));
  state_.control_seconds += spent.seconds();
  for (const Fields& event : events) defer(EventKind::kControl, event);
  if (parts_.engine.spec().samples != samples) loader_.reset();  // another ring
  return {};
}

// By the part held out, or where there is none by the test set.
Result<TrainingLoop::Verdict> TrainingLoop::judge() {
  const EvaluationRooms rooms{parts_.engine, parts_.pool, free_ring()};
  const data::Dataset& set = parts_.dataset;
  TRI_ASSIGN(const Judgement judged, evaluate(rooms, set.validation ? set.validation : set.test,
                                              state_.card.normalisation));
  Verdict verdict{judged, judged, false};
  if (set.validation && set.test) {
    TRI_ASSIGN(verdict.tested, evaluate(rooms, set.test, state_.card.normalisation));
  }
  verdict.best = !state_.best_judged || judged.accuracy > *state_.best_judged;
  if (verdict.best) {
    state_.best_judged = judged.accuracy;
    state_.best_test_accuracy = verdict.tested.accuracy;
  }
  state_.test_accuracy = verdict.tested.accuracy;
  return verdict;
}

Result<void> TrainingLoop::end_epoch() {
  const base::Stopwatch spent;
  TRI_ASSIGN(const Verdict verdict, judge());
  const double evaluation_seconds = spent.seconds();

  midway_ = true;  // between two epochs
  const auto counted = static_cast<double>(state_.counted);
  const double accuracy = state_.counted > 0 ? static_cast<double>(state_.correct) / counted : 0;
  state_.epochs = static_cast<int64_t>(state_.samples / epoch_samples_);
  state_.train_loss = state_.counted > 0 ? std::optional(state_.loss_sum / counted) : std::nullopt;
  std::optional<double> epoch_seconds;  // none: every step was lost
  if (state_.counted > 0) {
    state_.images_per_second = counted / state_.train_seconds;
    // The part of a batch that belongs to the next epoch is not this one's time.
    epoch_seconds = static_cast<double>(epoch_samples_) / *state_.images_per_second;
    state_.epoch_seconds.push_back(*epoch_seconds);
    if (state_.epoch_seconds.size() > kEpochsAveraged) {
      state_.epoch_seconds.erase(state_.epoch_seconds.begin());
    }
  }
  state_.epochs_since_best = verdict.best ? 0 : state_.epochs_since_best + 1;

  Fields fields{{"epoch", state_.epochs},
                {"train_accuracy", accuracy},
                {"test_accuracy", verdict.tested.accuracy},
                {"test_loss", verdict.tested.loss},
                {"lr", rate_},
                {"data_seconds", epoch_data_.waiting + epoch_data_.finishing},
                {"data_wait_seconds", epoch_data_.waiting},
                {"evaluation_seconds", evaluation_seconds},
                {"best", verdict.best}};
  fields.add(fields_of("epoch_seconds", epoch_seconds));
  fields.add(fields_of("images_per_second", state_.images_per_second));
  fields.add(fields_of("train_loss", state_.train_loss));
  if (parts_.dataset.validation) {
    fields.add(
        Fields{{"val_accuracy", verdict.judged.accuracy}, {"val_loss", verdict.judged.loss}});
  }
  TRI_TRY(write(EventKind::kEpoch, std::move(fields)));
  PanelState shown = panel_state();
  shown.epoch = std::min(state_.epochs, parts_.config.epochs);
  shown.loss = state_.train_loss;
  parts_.panel.epoch_done(shown);

  state_.loss_sum = 0;
  state_.correct = 0;
  state_.counted = 0;
  state_.train_seconds = 0;
  epoch_data_ = {};
  midway_ = false;
  TRI_TRY(report_skipped());
  TRI_TRY(write_summary(parts_.directory.summary(), summary(Status::kRunning)));
  if (verdict.best) TRI_TRY(save(true));
  return {};
}

Result<void> TrainingLoop::save(bool best) {
  const base::Stopwatch spent;
  const std::string path = best ? parts_.directory.best() : parts_.directory.last();
  state_.seconds = seconds();
  state_.engine_peak_bytes = engine_peak();
  state_.process_peak_bytes = process_peak();
  state_.card.table = table_of(parts_.engine.spec().formats);
  TRI_TRY(save_snapshot(
      path, parts_.engine, state_,
      parts_.config.export_dtype == "bf16" ? checkpoint::DType::kBf16 : checkpoint::DType::kF32));
  if (!best) {
    saved_step_ = state_.step;
    since_saved_.restart();
  }
  return write(
      EventKind::kCheckpoint,
      Fields{{"which", best ? "best" : "last"}, {"path", path}, {"save_seconds", spent.seconds()}});
}

Result<void> TrainingLoop::save_if_due() {
  const SaveInterval& interval = parts_.config.save_every;
  const bool due = interval.steps > 0 ? state_.step % static_cast<uint64_t>(interval.steps) == 0
                                      : since_saved_.seconds() >= 60 * interval.minutes;
  return due ? save(false) : Result<void>();
}

Result<LoopEnd> TrainingLoop::finish() {
  if (saved_step_ != state_.step) TRI_TRY(save(false));
  if (state_.counted > 0) {
    // Ended within an epoch: the summary gets its accuracy, the state stays that of the stream.
    TRI_ASSIGN(const Verdict verdict, judge());
    const auto counted = static_cast<double>(state_.counted);
    state_.train_loss = state_.loss_sum / counted;
    if (verdict.best) TRI_TRY(save(true));
    if (state_.epoch_seconds.empty()) state_.images_per_second = counted / state_.train_seconds;
  }
  return stop(Status::kDone, std::nullopt);
}

Result<LoopEnd> TrainingLoop::stop(Status status, std::optional<Error> why) {
  parts_.panel.close();
  const Summary end = summary(status);
  Fields fields{{"status", name(status)}};
  if (why) fields.add("reason", why->message);
  TRI_TRY(write(EventKind::kEnd, std::move(fields)));
  TRI_TRY(write_summary(parts_.directory.summary(), end));
  return LoopEnd{end, std::move(why)};
}

Result<void> TrainingLoop::warn(const std::string& text) {
  parts_.panel.note("warning: " + text);
  return write(EventKind::kWarning, Fields{{"message", text}});
}

Result<void> TrainingLoop::write(EventKind kind, Fields fields) {
  return parts_.events.write({kind, state_.step, state_.samples, seconds(), std::move(fields)});
}

void TrainingLoop::defer(EventKind kind, Fields fields) {
  deferred_.push_back({kind, state_.step, state_.samples, seconds(), std::move(fields)});
}

Result<void> TrainingLoop::write_deferred() {
  for (const metrics::Event& event : std::exchange(deferred_, {})) {
    TRI_TRY(parts_.events.write(event));
  }
  return {};
}

}  // namespace tri::train
