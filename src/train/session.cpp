// What a run needs before its first step: data, network, memory, directory, first or saved weights.
#include "tri/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/bytes.h"
#include "base/check.h"
#include "memory/probes.h"
#include "simd/target.h"
#include "train/ceiling.h"
#include "train/checkpoint_path.h"
#include "train/control_codec.h"
#include "train/engine_options.h"
#include "train/governing.h"
#include "train/interrupt.h"
#include "train/invalid.h"
#include "train/largest_batch.h"
#include "train/model_file.h"
#include "train/remedies.h"
#include "train/replace_file.h"
#include "train/snapshot.h"
#include "train/trace.h"
#include "train/training_loop.h"
#include "train/tuning/kernel_tuning.h"

namespace tri {
namespace train {
namespace {

Screen screen_for(const Display& display) {
  if (display.file >= 0) return screen_of(display.file, false);
  return {.write = [](std::string_view) {}, .columns = [] { return size_t{80}; }};
}

// Addresses for an engine that may grow when its ceiling is raised. They cost nothing, unless
// addresses themselves are limited.
uint64_t most_bytes(uint64_t ceiling) {
  const memory::Limits limits = memory::Probes().limits();
  for (const memory::Limit& limit : limits.all)
    if (limit.source == memory::Limit::Source::kAddressSpace &&
        limit.state == memory::Limit::State::kBytes)
      return ceiling;
  return std::max<uint64_t>(ceiling, memory::Probes().total().bytes.value_or(0));
}

// Everything up to the memory of the engine, which is planned but not taken.
struct Preparation {
  Config config;
  data::Dataset dataset;
  data::Augment augment;
  InputSize input;
  exec::EngineOptions options;
  std::unique_ptr<exec::Engine> engine;
  std::optional<control::Governor> governor;
  Need need;
  uint64_t ceiling_bytes = 0;  // what --memory comes to now

  Besides besides() const {
    return {need.base_bytes + need.pieces_bytes,
            [this](int64_t samples) { return ring_bytes(dataset, samples); }};
  }
  StepPricing pricing() const { return {config, *engine, besides()}; }

  // Plans the engine as a decision wants it.
  Result<void> plan_as(const control::Decision& decision, uint64_t ceiling) {
    options.most_bytes = most_bytes(ceiling);
    const auto model = engine->shared_model();
    const exec::StepSpec spec = pricing().spec(decision.table, decision, ceiling);
    options.step = spec;
    TRI_ASSIGN(engine, exec::Engine::plan(model, options));
    need.engine_bytes = engine->forecast().engine_peak_bytes;
    need.data_bytes = ring_bytes(dataset, spec.samples);
    return {};
  }
};

Result<InputSize> size_of(const data::Source& source, const Config& config) {
  const data::SourceInfo& info = source.info();
  if (config.classes && *config.classes != info.classes()) {
    return invalid(fmt::format("--classes {} was given and '{}' has {}; leave it out",
                               *config.classes, config.data, info.classes()));
  }
  InputSize input{info.shape, info.classes()};
  if (config.pixels) input.image.h = input.image.w = *config.pixels;
  return input;
}

// `kernels`: of a run that is resumed.
Result<Preparation> prepare(const Config& config, std::vector<ops::Kernels> kernels = {}) {
  Preparation made;
  made.config = config;
  TRI_ASSIGN(made.ceiling_bytes, ceiling_bytes(config.memory, memory::Probes()));
  const uint64_t decoding = decode_bytes(config.data, made.ceiling_bytes);
  TRI_ASSIGN(made.dataset,
             data::open_dataset(
                 config.data, {.pixels = config.pixels.value_or(0),
                               .val_split = config.val_split,
                               .train_count = static_cast<uint64_t>(config.train_count.value_or(0)),
                               .decode_bytes = decoding}));
  const data::SourceInfo& info = made.dataset.train->info();
  TRI_ASSIGN(made.augment, data::parse_augment(config.augment, info.augment));
  TRI_ASSIGN(made.input, size_of(*made.dataset.train, config));
  TRI_ASSIGN(const auto model, model_of(config, made.input));
  TRI_ASSIGN(made.options, engine_options(config, *model));
  made.options.step.kernels = std::move(kernels);
  TRI_ASSIGN(made.engine, plan_engine(config, model, made.options));
  made.governor.emplace(make_governor(config, *model, info.count));
  made.need.engine_bytes = made.engine->forecast().engine_peak_bytes;
  made.need.data_bytes = ring_bytes(made.dataset, config.batch);
  made.need.pieces_bytes = pieces_bytes(made.engine->parameters()) + decoding;
  return made;
}

// A start that does not fit goes the way of a run whose ceiling was lowered: the governor finds
// another, where its modes allow it.
Result<std::optional<metrics::Fields>> fit_at_start(Preparation& made, RunState& state) {
  TRI_TRY(made.plan_as(made.governor->current(state.control), state.ceiling_bytes));
  control::Signals at;
  at.step = state.step;
  at.samples = state.samples;
  const auto [decision, signals] =
      decide_under(*made.governor, state.control, made.pricing(), made.need.total(),
                   state.ceiling_bytes, std::move(at));
  if (decision.changes.empty()) return std::optional<metrics::Fields>{};
  TRI_TRY(made.plan_as(decision, state.ceiling_bytes));
  return std::optional(event_fields(decision, signals, true));
}

Result<void> check_ceiling(const Preparation& made, uint64_t ceiling) {
  if (made.need.total() <= ceiling) return {};
  TRI_ASSIGN(const int64_t largest,
             largest_batch(made.config, *made.engine, made.besides(), ceiling));
  TRI_ASSIGN(
      const std::vector<PlannedRemedy> remedies,
      find_remedies(made.config, made.engine->shared_model(), made.besides(), ceiling, largest));
  return unexpected(does_not_fit(made.need, ceiling, advice(remedies)));
}

Result<RunState> first_state(const Preparation& made) {
  const Config& config = made.config;
  RunState state;
  state.control = made.governor->start();
  state.seed = config.seed;
  state.simd_target = simd::active_target();
  state.config_crc = config_crc(config);
  state.base_bytes = made.need.base_bytes;
  state.ceiling_bytes = state.asked_bytes = made.ceiling_bytes;
  state.card = {.model = config.model,
                .width = config.width,
                .image = made.input.image,
                .class_names = made.dataset.train->info().class_names,
                .data = config.data,
                .val_split = config.val_split,
                .weights = config.weights,
                .table = {},
                .normalisation = {},
                .kernels = {}};
  TRI_ASSIGN(state.card.normalisation, data::measure(*made.dataset.train));
  return state;
}

Result<void> adopt_kernels(Preparation& made, RunState& state, std::vector<ops::Kernels> kernels) {
  state.card.kernels = kernels;
  made.options.step.kernels = std::move(kernels);
  TRI_ASSIGN(made.engine, exec::Engine::plan(made.engine->shared_model(), made.options));
  // As resuming does.
  return made.plan_as(made.governor->current(state.control), state.ceiling_bytes);
}

// --tune: settles the kernels of the whole run.
Result<std::vector<KernelTime>> tune(Preparation& made, RunState& state) {
  const auto model = made.engine->shared_model();
  const uint64_t room = state.ceiling_bytes - (made.need.total() - made.need.engine_bytes);
  base::ThreadPool pool(threads_of(made.config));
  TRI_ASSIGN(KernelTuning tuning,
             tune_kernels(model, made.options, hyper_of(made.config), room, pool));
  TRI_TRY(adopt_kernels(made, state, std::move(tuning.kernels)));
  return std::move(tuning.times);
}

// Loads --init; says what did not come from it.
Result<std::vector<std::string>> load_init(const Config& config, exec::Engine& engine) {
  if (config.init.empty()) return std::vector<std::string>{};
  TRI_ASSIGN(const std::string file, model_file_of(config.init));
  TRI_ASSIGN(const LoadedModel loaded, read_model(file, engine.parameters(), true));
  std::vector<std::string> notes;
  if (!loaded.kept.empty()) {
    notes.push_back(fmt::format("'{}' is for another number of classes: {} start{} from the seed",
                                file, fmt::join(loaded.kept, " and "),
                                loaded.kept.size() == 1 ? "s" : ""));
  }
  if (loaded.unused > 0) {
    notes.push_back(
        fmt::format("{} tensors of '{}' are not part of {}", loaded.unused, file, config.model));
  }
  return notes;
}

std::string headline(const Preparation& made, const RunState& state, const RunDirectory& run) {
  const data::Dataset& set = made.dataset;
  const std::string sizes =
      fmt::format("{} images to learn from, {} to {} with", set.train->info().count,
                  set.judge().info().count, set.validation ? "validate" : "test");
  return fmt::format(
      "{}: {} parameters, {} classes; {}\nmemory: {} for the engine, {} for the process, of {}\n"
      "files: {}",
      made.config.model, made.engine->model().parameter_elements(), made.input.classes, sizes,
      base::format_bytes(made.need.engine_bytes), base::format_bytes(made.need.total()),
      base::format_bytes(state.ceiling_bytes), run.path);
}

// What is to be said before the first step.
struct Opening {
  std::optional<metrics::Fields> decision;
  std::vector<std::string> warnings;
};

Result<TrainOutcome> work(Preparation& made, RunState state, const RunDirectory& run,
                          metrics::JsonlWriter events, const Opening& opening,
                          const Display& display, const CeilingRecord* repeats = nullptr) {
  const InterruptGuard guard;
  Panel panel(screen_for(display));
  panel.note(headline(made, state, run));
  base::ThreadPool pool(threads_of(made.config));
  const StepPricing pricing = made.pricing();
  TrainingLoop loop({made.config, run, made.dataset, made.augment, *made.governor, pricing,
                     *made.engine, pool, events, panel, repeats},
                    std::move(state));
  for (const std::string& warning : opening.warnings) TRI_TRY(loop.warn(warning));
  Result<LoopEnd> end = loop.run(opening.decision);
  panel.close();
  if (!end) return unexpected(end.error());
  return TrainOutcome{run.path, to_json(end->summary), std::move(end->stopped)};
}

uint64_t resident_bytes() { return memory::Probes().resident().bytes.value_or(0); }

// The configuration of a run with what may change.
Result<ResolvedConfig> resumed_config(const RunDirectory& run, const Settings& changes) {
  ConfigBuilder saved;
  TRI_TRY(saved.read_file(run.config()));
  TRI_ASSIGN(const ResolvedConfig before, saved.resolve());
  ConfigBuilder changed = saved;
  for (const auto& [key, text] : changes) {
    ConfigBuilder alone = saved;
    TRI_TRY(alone.set(key, text));
    TRI_TRY(changed.set(key, text));
    TRI_ASSIGN(const ResolvedConfig with, alone.resolve());
    if (config_crc(with.config) != config_crc(before.config)) {
      return invalid(
          fmt::format("--{} {} differs from the run in '{}', which could not continue "
                      "as it began; leave it out or start a new run",
                      key, text, run.path));
    }
  }
  return changed.resolve();
}

// `state` goes on with the SIMD target of this process.
std::optional<std::string> note_other_target(RunState& state) {
  const std::string before = std::exchange(state.simd_target, simd::active_target());
  if (before == state.simd_target) return std::nullopt;
  const auto multiplies = [](std::string_view target) {
    return target == simd::kBf16Target || target == simd::kAmxTarget;
  };
  const bool products = multiplies(before) != multiplies(state.simd_target);
  return fmt::format(
      "saved on SIMD target {} and continued on {}: results may differ{}; TRIACCEL_SIMD={} would "
      "repeat them",
      before, state.simd_target,
      products ? ", as only one of them multiplies in bf16" : " in the last bits", before);
}

// Whoever spoke last about a run that stopped: --memory, or a `set` that it did not live to meet.
Result<bool> move_ceiling(const Config& config, const RunDirectory& run, const Settings& changes,
                          RunState& state) {
  RequestReader requests(run.control(), state.request_serial);
  const std::optional<Request> request = requests.poll();
  state.request_serial = requests.serial();
  const bool given =
      std::ranges::any_of(changes, [](const auto& change) { return change.first == "memory"; });
  if (!given && !request) return false;
  TRI_ASSIGN(state.ceiling_bytes,
             ceiling_bytes(given ? config.memory : request->memory, memory::Probes()));
  state.asked_bytes = state.ceiling_bytes;
  return true;
}

Result<void> check_batch(const Preparation& made) {
  const auto images = static_cast<int64_t>(made.dataset.train->info().count);
  if (made.config.batch <= images) return {};
  return invalid(
      fmt::format("--batch {} is more than the {} images to learn from; give a smaller "
                  "one",
                  made.config.batch, images));
}

// Statistics of so few samples that a layer of one pixel loses what they say.
std::optional<std::string> note_small_ghost(const Config& config, const nn::Model& model) {
  constexpr int64_t kFew = 4;
  const bool normalises = std::ranges::any_of(
      model.nodes, [](const nn::Node& node) { return node.kind == ops::OpKind::kBatchNorm; });
  const int64_t ghost = *config.ghost_batch;
  const int64_t samples = ghost > 0 ? ghost : config.batch;
  if (!normalises || samples >= kFew) return std::nullopt;
  return fmt::format("batch norm sees {} of --batch {} at a time, too few to learn well; give {}",
                     samples, config.batch,
                     config.batch >= kFew
                         ? fmt::format("--ghost-batch {}, or a --batch with a larger divisor up "
                                       "to 32",
                                       config.batch)
                         : fmt::format("--batch {} or more", kFew));
}

// What a run that is repeated met and chose.
struct Repeated {
  CeilingRecord ceilings;  // to live below, instead of the machine's
  RunState last;
};

Result<TrainOutcome> begin(const ResolvedConfig& resolved, Repeated* repeats,
                           const Display& display) {
  TRI_ASSIGN(Preparation made, prepare(resolved.config));
  if (!made.config.profile.empty()) TRI_TRY(begin_trace(made.config.profile));
  made.need.base_bytes = repeats != nullptr ? repeats->ceilings.base_bytes : resident_bytes();
  TRI_ASSIGN(RunState state, first_state(made));
  if (repeats != nullptr) state.ceiling_bytes = state.asked_bytes = repeats->ceilings.first_bytes;
  TRI_ASSIGN(std::optional<metrics::Fields> opening, fit_at_start(made, state));
  TRI_TRY(check_ceiling(made, state.ceiling_bytes));
  TRI_TRY(check_batch(made));
  const bool tunes = made.config.tune && repeats == nullptr;
  std::vector<KernelTime> times;
  if (tunes) {
    TRI_ASSIGN(times, tune(made, state));
  } else if (made.config.tune) {
    TRI_TRY(adopt_kernels(made, state, repeats->last.card.kernels));
  }
  TRI_TRY(made.engine->obtain(static_cast<uint64_t>(made.config.seed)));
  TRI_ASSIGN(std::vector<std::string> notes, load_init(made.config, *made.engine));
  if (const auto note = note_small_ghost(made.config, made.engine->model())) notes.push_back(*note);
  if (repeats != nullptr) {
    if (const auto note = note_other_target(repeats->last)) notes.push_back(*note);
  }
  TRI_ASSIGN(const RunDirectory run, make_run_directory(made.config));
  TRI_ASSIGN(const RunLock lock, RunLock::take(run));
  std::remove(run.control().c_str());  // what was asked of an earlier run here
  TRI_TRY(replace_file(run.config(), to_toml(resolved)));
  if (tunes) TRI_TRY(replace_file(run.kernels(), to_json(times)));
  TRI_ASSIGN(metrics::JsonlWriter events, metrics::JsonlWriter::create(run.metrics()));
  return work(made, std::move(state), run, std::move(events), {opening, notes}, display,
              repeats != nullptr ? &repeats->ceilings : nullptr);
}

}  // namespace
}  // namespace train

Result<TrainOutcome> run_training(const ResolvedConfig& resolved, const Display& display) {
  return train::begin(resolved, nullptr, display);
}

Result<TrainOutcome> repeat_training(const std::string& directory, const Settings& changes,
                                     const Display& display) {
  using namespace tri::train;
  TRI_ASSIGN(const RunDirectory run, find_run_directory(directory, "--repeat"));
  TRI_ASSIGN(ResolvedConfig resolved, resumed_config(run, changes));
  const bool elsewhere =
      std::ranges::any_of(changes, [](const auto& change) { return change.first == "out"; });
  if (!elsewhere) resolved.config.out.clear();
  Repeated repeats;
  TRI_ASSIGN(repeats.ceilings, read_ceilings(run.metrics()));
  TRI_ASSIGN(repeats.last, read_snapshot_state(run.last()));
  return begin(resolved, &repeats, display);
}

Result<TrainOutcome> resume_training(const std::string& directory, const Settings& changes,
                                     const Display& display) {
  using namespace tri::train;
  TRI_ASSIGN(const RunDirectory run, find_run_directory(directory));
  TRI_ASSIGN(const RunLock lock, RunLock::take(run));
  for (const auto& [key, text] : changes) {
    if (key != "out") continue;
    return invalid(
        fmt::format("--out {} has no say with --resume, the run goes on in '{}'; leave "
                    "it out, or copy the directory first",
                    text, run.path));
  }
  TRI_ASSIGN(const ResolvedConfig resolved, resumed_config(run, changes));
  TRI_ASSIGN(RunState state, read_snapshot_state(run.last()));
  if (state.config_crc != config_crc(resolved.config)) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' is not the configuration that '{}' was saved with; restore "
                                  "it",
                                  run.config(), run.last()));
  }
  TRI_ASSIGN(Preparation made, prepare(resolved.config, state.card.kernels));
  made.need.base_bytes = state.base_bytes;
  std::optional<metrics::Fields> opening;
  TRI_ASSIGN(const bool other_ceiling, move_ceiling(made.config, run, changes, state));
  TRI_TRY(made.plan_as(made.governor->current(state.control), state.ceiling_bytes));
  if (other_ceiling) {
    TRI_ASSIGN(opening, fit_at_start(made, state));
  }
  // Other programs may have pressed it lower than the run can go; it went on with a warning.
  TRI_TRY(check_ceiling(made, std::max(state.ceiling_bytes, state.asked_bytes)));
  TRI_TRY(made.engine->obtain(static_cast<uint64_t>(made.config.seed)));
  TRI_TRY(load_snapshot(run.last(), *made.engine));
  std::vector<std::string> warnings;
  if (const auto note = note_other_target(state)) warnings.push_back(*note);
  // What was changed holds from now on, also when this process dies.
  if (!changes.empty()) TRI_TRY(replace_file(run.config(), to_toml(resolved)));
  TRI_ASSIGN(metrics::JsonlWriter events, metrics::JsonlWriter::resume(run.metrics(), state.step));
  return work(made, std::move(state), run, std::move(events), {opening, warnings}, display);
}

}  // namespace tri
