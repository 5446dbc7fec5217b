#include "tri/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "exec/recompute.h"
#include "train/ceiling.h"
#include "train/engine_options.h"
#include "train/governing.h"
#include "train/process_memory.h"
#include "train/step_pricing.h"

namespace tri {
namespace {

using base::format_bytes;
using numeric::Format;

constexpr int64_t kMostSamples = 1'000'000;  // as --batch

// The engine's need as a function of the batch, everything else fixed.
class Peaks {
 public:
  Peaks(const Config& config, std::shared_ptr<const nn::Model> model,
        const exec::EngineOptions& options)
      : config_(config), model_(std::move(model)), options_(options) {}

  int64_t unit() const { return std::max<int64_t>(1, options_.step.ghost); }

  Result<exec::Forecast> forecast(int64_t batch) {
    options_.step.samples = batch;
    TRI_ASSIGN(const auto engine, train::plan_engine(config_, model_, options_));
    return engine->forecast();
  }

  // The largest batch whose peak is within `room`, 0 if there is none. The need is nearly linear in
  // the batch, so the next guess is where the line through the bracket's ends meets the room.
  Result<int64_t> most_within(uint64_t room) {
    const int64_t most = kMostSamples / unit();
    End low{0, 0}, high{1, 0};
    TRI_ASSIGN(high.peak, peak(high.units));
    if (high.peak > room) return int64_t{0};
    while (high.peak <= room) {
      if (high.units == most) return most * unit();
      low = high;
      high.units = std::min(most, 2 * high.units);
      TRI_ASSIGN(high.peak, peak(high.units));
    }
    while (high.units - low.units > 1) {
      End middle{guess(low, high, room), 0};
      TRI_ASSIGN(middle.peak, peak(middle.units));
      (middle.peak <= room ? low : high) = middle;
    }
    return low.units * unit();
  }

 private:
  struct End {
    int64_t units;
    uint64_t peak;
  };

  // With the images that wait beside it, and recomputed where a run would do so.
  Result<uint64_t> peak(int64_t units) {
    const int64_t samples = units * unit();
    const auto waiting = static_cast<uint64_t>(samples * model_->input_shape().elements());
    const bool recomputes =
        config_.recompute == Recompute::kAuto && config_.batch_mode != BatchMode::kElastic;
    if (!recomputes) {
      TRI_ASSIGN(const exec::Forecast made, forecast(samples));
      return uint64_t{made.engine_peak_bytes} + waiting;
    }
    if (!engine_) {
      TRI_ASSIGN(engine_, train::plan_engine(config_, model_, options_));
    }
    exec::StepSpec spec = options_.step;
    spec.samples = samples;
    TRI_ASSIGN(const size_t least, exec::least_peak(*engine_, spec));
    return uint64_t{least} + waiting;
  }

  static int64_t guess(const End& low, const End& high, uint64_t room) {
    const double share =
        static_cast<double>(room - low.peak) / static_cast<double>(high.peak - low.peak);
    const auto step = static_cast<int64_t>(share * static_cast<double>(high.units - low.units));
    return std::clamp(low.units + step, low.units + 1, high.units - 1);
  }

  const Config& config_;
  std::shared_ptr<const nn::Model> model_;
  exec::EngineOptions options_;
  std::unique_ptr<exec::Engine> engine_;  // to ask for prices
};

// Cheaper ways to train the same network, each with all before it.
struct Saving {
  std::string_view options;
  void (*apply)(exec::EngineOptions& options);
};
constexpr Saving kSavings[] = {
    {"--recompute auto", [](exec::EngineOptions& options) { options.store = false; }},
    {"--step fused",
     [](exec::EngineOptions& options) { options.step.mode = exec::StepMode::kFused; }},
    {"--precision bf16",
     [](exec::EngineOptions& options) {
       std::ranges::fill(options.step.formats,
                         exec::LayerFormats{Format::kBf16, Format::kBf16, Format::kBf16});
     }},
    {"--weights bf16+8 --state int8",
     [](exec::EngineOptions& options) {
       options.forms.weights = optim::WeightForm::kBf16x8;
       options.forms.state = optim::StateForm::kInt8;
     }},
};

Result<std::vector<PlannedRemedy>> find_remedies(const Config& config,
                                                 const std::shared_ptr<const nn::Model>& model,
                                                 const exec::EngineOptions& asked,
                                                 const MemoryPlan& plan, uint64_t base) {
  std::vector<PlannedRemedy> found;
  const auto consider = [&](const std::string& text, uint64_t engine_peak) {
    if (engine_peak + base <= plan.ceiling_bytes) found.push_back({text, engine_peak + base});
  };
  if (plan.max_batch > 0) {
    TRI_ASSIGN(const exec::Forecast smaller, Peaks(config, model, asked).forecast(plan.max_batch));
    consider(fmt::format("--batch {}", plan.max_batch), smaller.engine_peak_bytes);
  }
  exec::EngineOptions options = asked;
  uint64_t last = plan.engine_peak_bytes;
  std::string text;
  for (const Saving& saving : kSavings) {
    exec::EngineOptions cheaper = options;
    saving.apply(cheaper);
    TRI_ASSIGN(const exec::Forecast made, Peaks(config, model, cheaper).forecast(plan.batch));
    if (made.engine_peak_bytes >= last) continue;
    options = cheaper;
    last = made.engine_peak_bytes;
    text += (text.empty() ? "" : " ") + std::string(saving.options);
    consider(text, last);
  }
  if (found.empty()) {
    Peaks peaks(config, model, options);
    TRI_ASSIGN(const exec::Forecast least, peaks.forecast(peaks.unit()));
    consider(fmt::format("{} --batch {}", text, peaks.unit()), least.engine_peak_bytes);
  }
  return found;
}

MemoryPlan describe(const exec::Forecast& forecast, const exec::StepSpec& spec) {
  MemoryPlan plan;
  plan.batch = spec.samples;
  plan.engine_peak_bytes = forecast.engine_peak_bytes;
  plan.params = forecast.params;
  for (const memory::Kind kind : memory::kKinds)
    plan.by_kind.emplace_back(memory::name(kind), forecast.by_kind[kind]);
  for (size_t l = 0; l < forecast.layers.size(); ++l) {
    const exec::LayerForecast& layer = forecast.layers[l];
    const exec::LayerFormats& row = spec.formats[l];
    const auto word = [](Format format) { return numeric::spec(format).name; };
    plan.layers.push_back({layer.name, layer.params, layer.weights_bytes, layer.state_bytes,
                           layer.saved_bytes, word(row.p), word(row.y), word(row.gy), word(row.gp),
                           ops::name(layer.kernels.forward), ops::name(layer.kernels.backward)});
  }
  return plan;
}

// What `train` would make of it: another batch or recomputed blocks, where its modes allow.
Result<void> find_way(const Config& config, const nn::Model& model, const exec::Engine& engine,
                      const train::StepPricing& pricing, MemoryPlan& plan) {
  const control::Governor governor = train::make_governor(config, model);
  control::GovernorState state = governor.start();
  const auto [decision, signals] =
      train::decide_under(governor, state, pricing, plan.process_peak_bytes, plan.ceiling_bytes);
  const exec::StepSpec spec =
      pricing.spec(decision.table, decision.batch, decision.micros, plan.ceiling_bytes);
  const uint64_t bytes = pricing.bytes(spec);
  if (bytes > plan.ceiling_bytes) return {};
  TRI_ASSIGN(const exec::Forecast forecast, engine.price(spec));
  const MemoryPlan asked = std::exchange(plan, describe(forecast, spec));
  plan.batch = spec.batch();
  plan.ceiling_bytes = asked.ceiling_bytes;
  plan.process_peak_bytes = bytes;
  plan.fits = true;
  for (const control::Change& change : decision.changes)
    plan.changes.push_back({change.what, change.from, change.to, change.reason});
  if (!spec.recompute.empty())
    plan.changes.push_back(
        {"recomputed blocks", "0", fmt::format("{}", spec.recompute.size()),
         fmt::format("as asked it needs {} of {}", format_bytes(asked.process_peak_bytes),
                     format_bytes(plan.ceiling_bytes))});
  return {};
}

}  // namespace

Result<MemoryPlan> plan_memory(const ResolvedConfig& resolved) {
  const Config config = train::without_data(resolved);
  TRI_ASSIGN(const uint64_t ceiling, train::ceiling_bytes(config.memory, memory::Probes()));
  TRI_ASSIGN(const auto model, train::model_of(config));
  TRI_ASSIGN(const exec::EngineOptions options, train::engine_options(config, *model));
  Peaks peaks(config, model, options);
  TRI_ASSIGN(const exec::Forecast forecast, peaks.forecast(config.batch));
  // Now, as a run would hold it: the search below leaves traces on the heap.
  TRI_ASSIGN(uint64_t base, train::process_base_bytes(options.step.threads));
  TRI_ASSIGN(const auto engine, train::plan_engine(config, model, options));
  base += train::pieces_bytes(engine->parameters());
  const auto image_bytes = static_cast<uint64_t>(model->input_shape().elements());
  const train::StepPricing pricing(config, *engine, {base, [image_bytes](int64_t samples) {
                                                       return static_cast<uint64_t>(samples) *
                                                              image_bytes;
                                                     }});

  MemoryPlan plan = describe(forecast, options.step);
  plan.ceiling_bytes = ceiling;
  plan.process_peak_bytes = pricing.bytes_now();
  plan.fits = plan.process_peak_bytes <= ceiling;
  if (!plan.fits) TRI_TRY(find_way(config, *model, *engine, pricing, plan));
  const control::Governor governor = train::make_governor(config, *model);
  if (const control::Assignment& low = governor.start().assignment; !low.empty()) {
    plan.tensor_bits = control::tensor_bits(governor.ops(), plan.batch, low);
    plan.low_ratio = control::low_ratio(governor.ops(), plan.batch, low);
  }
  if (ceiling > base) {
    TRI_ASSIGN(plan.max_batch, peaks.most_within(ceiling - base));
  }
  // An elastic run that is pressed hard recomputes too.
  if (plan.fits) plan.max_batch = std::max(plan.max_batch, plan.batch);
  if (!plan.fits) {
    TRI_ASSIGN(plan.remedies, find_remedies(config, model, options, plan, base));
  }
  return plan;
}

std::string refusal(const MemoryPlan& plan) {
  const std::string needs =
      fmt::format("a batch of {} needs {}, but the ceiling is {}", plan.batch,
                  format_bytes(plan.process_peak_bytes), format_bytes(plan.ceiling_bytes));
  if (plan.remedies.empty()) return needs + "; give more --memory or a smaller network";
  std::string choices;
  for (const PlannedRemedy& remedy : plan.remedies) {
    choices += fmt::format("{}{} ({})", choices.empty() ? "" : ", or ", remedy.options,
                           format_bytes(remedy.process_peak_bytes));
  }
  return fmt::format("{}; give {}", needs, choices);
}

}  // namespace tri
