#include "train/remedies.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "train/config_rules.h"
#include "train/engine_options.h"
#include "train/governing.h"

namespace tri::train {
namespace {

// Cheaper ways to train the same network, each tried with all before it: first what changes no
// result.
struct Saving {
  std::string_view options;
  void (*apply)(Config& config);
};
constexpr Saving kSavings[] = {
    {"--recompute auto",
     [](Config& config) {
       if (config.recompute == Recompute::kOff) config.recompute = Recompute::kAuto;
     }},
    {"--step fused", [](Config& config) { config.step = UpdateTime::kFused; }},
    {"--batch-mode micro",
     [](Config& config) {
       if (config.batch_mode != BatchMode::kFixed) return;
       config.batch_mode = BatchMode::kMicro;
       if (*config.ghost_batch == 0) config.ghost_batch = default_ghost_batch(config.batch);
     }},
    {"--precision adaptive",
     [](Config& config) { config.precision.policy = Precision::Policy::kAdaptive; }},
    {"--weights bf16+8 --state int8",
     [](Config& config) {
       config.weights = "bf16+8";
       config.state = "int8";
     }},
};

class Trials {
 public:
  Trials(std::shared_ptr<const nn::Model> model, const Besides& besides, uint64_t ceiling)
      : model_(std::move(model)), besides_(besides), ceiling_(ceiling) {}

  // Whether a run would fit; notes it if so.
  Result<bool> fits(const Config& config, const std::string& options) {
    TRI_ASSIGN(const exec::EngineOptions asked, engine_options(config, *model_));
    TRI_ASSIGN(const auto engine, plan_engine(config, model_, asked));
    const StepPricing pricing(config, *engine, besides_);
    const uint64_t bytes = first_step(config, *model_, pricing, ceiling_).bytes;
    if (bytes > ceiling_) return false;
    found_.push_back({options, bytes});
    return true;
  }
  std::vector<PlannedRemedy> found() && { return std::move(found_); }

 private:
  std::shared_ptr<const nn::Model> model_;
  const Besides& besides_;
  uint64_t ceiling_;
  std::vector<PlannedRemedy> found_;
};

// With the bounds that the user would get for it.
void set_batch(Config& config, int64_t batch) {
  config.batch = batch;
  if (*config.ghost_batch > 0) config.ghost_batch = default_ghost_batch(batch);
  config.batch_min = config.batch_max = config.delta_up = config.delta_down = std::nullopt;
  derive(config);
}

}  // namespace

FirstStep first_step(const Config& config, const nn::Model& model, const StepPricing& pricing,
                     uint64_t ceiling) {
  const control::Governor governor = make_governor(config, model);
  control::GovernorState state = governor.start();
  FirstStep first;
  first.decision = decide_under(governor, state, pricing, pricing.bytes_now(), ceiling).decision;
  first.spec = pricing.spec(first.decision.table, first.decision, ceiling);
  first.bytes = pricing.bytes(first.spec);
  return first;
}

Result<std::vector<PlannedRemedy>> find_remedies(const Config& config,
                                                 const std::shared_ptr<const nn::Model>& model,
                                                 const Besides& besides, uint64_t ceiling,
                                                 int64_t largest) {
  Trials trials(model, besides, ceiling);
  if (largest > 0) {
    Config smaller = config;
    set_batch(smaller, largest);
    TRI_TRY(trials.fits(smaller, fmt::format("--batch {}", largest)));
  }
  Config cheaper = config;
  std::string options;
  for (const Saving& saving : kSavings) {
    const Config before = cheaper;
    saving.apply(cheaper);
    if (cheaper == before) continue;
    options += std::string(saving.options) + " ";
    TRI_ASSIGN(const bool fits, trials.fits(cheaper, options.substr(0, options.size() - 1)));
    if (fits) return std::move(trials).found();
  }
  while (cheaper.batch > 1) {  // all of it, and half the batch as often as it takes
    set_batch(cheaper, cheaper.batch / 2);
    TRI_ASSIGN(const bool fits,
               trials.fits(cheaper, fmt::format("{}--batch {}", options, cheaper.batch)));
    if (fits) break;
  }
  return std::move(trials).found();
}

std::string advice(const std::vector<PlannedRemedy>& remedies) {
  if (remedies.empty()) return "give more --memory or a smaller network";
  std::string choices;
  for (const PlannedRemedy& remedy : remedies) {
    choices += fmt::format("{}{} ({})", choices.empty() ? "" : ", or ", remedy.options,
                           base::format_bytes(remedy.process_peak_bytes));
  }
  return "give " + choices;
}

}  // namespace tri::train
