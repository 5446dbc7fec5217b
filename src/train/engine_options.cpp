#include "train/engine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "data/readers.h"
#include "exec/recompute.h"
#include "nn/catalog.h"
#include "train/config_table.h"
#include "train/governing.h"
#include "train/machine.h"

namespace tri::train {
namespace {

struct KnownSet {
  std::string_view name;
  int64_t pixels, channels, classes;
};
constexpr KnownSet kKnownSets[] = {{"fashion-mnist", 28, 1, 10},
                                   {"mnist", 28, 1, 10},
                                   {"cifar10", 32, 3, 10},
                                   {"cifar100", 32, 3, 100}};

const KnownSet* known_set(std::string_view data) {
  const auto* const found =
      std::ranges::find(kKnownSets, data.substr(0, data.find(':')), &KnownSet::name);
  return found == std::end(kKnownSets) ? nullptr : found;
}

Result<InputSize> synthetic_size(const Config& config, std::string_view argument) {
  TRI_ASSIGN(const data::Parts parts,
             data::open_synthetic({std::string(argument), config.pixels.value_or(0)}));
  const data::SourceInfo& info = parts.train->info();
  return InputSize{info.shape, info.classes()};
}

}  // namespace

Config without_data(const ResolvedConfig& resolved) {
  Config config = resolved.config;
  const OptionRow& data = *find_option("data");
  const auto index = static_cast<size_t>(&data - option_rows().data());
  const bool open = resolved.origins[index] == Origin::kDefault;
  if (open && (config.pixels || config.classes)) config.data = "synthetic";
  return config;
}

tensor::Shape stored_shape(const Config& config, const tensor::Shape& input) {
  const KnownSet* const known = known_set(config.data);
  return known == nullptr ? input : tensor::Shape{known->pixels, known->pixels, known->channels};
}

Result<InputSize> input_size(const Config& config) {
  const std::string_view spec = config.data;
  const std::string_view set = spec.substr(0, spec.find(':'));
  InputSize size;
  if (set == "synthetic") {
    const std::string_view argument = set.size() < spec.size() ? spec.substr(set.size() + 1) : "10";
    TRI_ASSIGN(size, synthetic_size(config, argument));
  } else if (const KnownSet* const known = known_set(spec)) {
    size = {{known->pixels, known->pixels, known->channels}, known->classes};
  } else if (!config.pixels || !config.classes) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("the sizes of '{}' are not known before it is opened; give "
                                  "--pixels and --classes",
                                  config.data));
  } else {
    size.image.c = 3;
  }
  if (config.pixels) size.image.h = size.image.w = *config.pixels;
  if (config.classes) size.classes = *config.classes;
  return size;
}

Result<std::shared_ptr<const nn::Model>> model_of(const Config& config, const InputSize& input) {
  const auto rate = [](const std::optional<double>& given) {
    return given ? std::optional(static_cast<float>(*given)) : std::nullopt;
  };
  TRI_ASSIGN(nn::Model model,
             nn::build(config.model, {.height = input.image.h,
                                      .width = input.image.w,
                                      .channels = input.image.c,
                                      .classes = input.classes,
                                      .width_multiplier = config.width,
                                      .dropout = rate(config.dropout),
                                      .stochastic_depth = rate(config.stochastic_depth)}));
  return std::make_shared<const nn::Model>(std::move(model));
}

Result<std::shared_ptr<const nn::Model>> model_of(const Config& config) {
  TRI_ASSIGN(const InputSize input, input_size(config));
  return model_of(config, input);
}

bool is_stateless(const Config& config) {
  return config.optimizer == "sgd" && config.momentum == 0;
}

std::string state_word(const Config& config) {
  return is_stateless(config) ? "none" : config.state;
}

Result<exec::EngineOptions> engine_options(const Config& config, const nn::Model& model) {
  const auto rule = optim::parse_rule(config.optimizer);
  const auto weights = optim::parse_weight_form(config.weights);
  const auto state = optim::parse_state_form(config.state);
  TRI_CHECK(rule && weights && state, "{} {} {}", config.optimizer, config.weights, config.state);
  TRI_CHECK(config.ghost_batch.has_value());

  exec::EngineOptions options;
  options.step.samples = config.batch;
  options.step.ghost = *config.ghost_batch;
  options.step.threads = threads_of(config);
  options.step.mode =
      config.step == UpdateTime::kFused ? exec::StepMode::kFused : exec::StepMode::kAfter;
  options.step.rule = *rule;
  options.step.label_smoothing = static_cast<float>(config.label_smoothing);
  const auto accumulate = numeric::parse_format(config.accumulate);
  TRI_CHECK(accumulate, "{}", config.accumulate);
  options.step.accumulate = *accumulate;
  if (config.clip) {
    // Without the fused step all gradients are there before any is used: exact costs nothing.
    const bool exact = config.clip_exact || options.step.mode == exec::StepMode::kAfter;
    options.step.clip = config.clip_layer ? exec::Clip::kLayer
                        : exact           ? exec::Clip::kExact
                                          : exec::Clip::kNone;
    options.step.clip_norm = static_cast<float>(*config.clip);
  }
  if (config.curvature != Curvature::kOff) {
    const bool fisher = config.curvature == Curvature::kFisher;
    options.curvature = {.estimator = fisher ? exec::Estimator::kFisher : exec::Estimator::kHessian,
                         .samples = config.curvature_batch,
                         .top = static_cast<size_t>(config.curvature_top),
                         .noise = config.noise_scale && config.batch_mode == BatchMode::kElastic};
  }
  const control::Governor governor = make_governor(config, model);
  options.step.skip =
      scales_loss(governor.settings().precision) ? exec::Skip::kRest : exec::Skip::kLayer;
  options.step.formats = formats_of(governor.current(governor.start()).table);
  options.forms.weights = *weights;
  options.forms.state = *state;
  options.forms.moments = is_stateless(config) ? 0 : optim::moments(*rule);
  options.batch_buffers = 1;  // the next batch waits in the loader, as bytes
  options.store = config.recompute == Recompute::kOff;
  options.step.drop_light = !options.store;
  return options;
}

Result<std::unique_ptr<exec::Engine>> plan_engine(const Config& config,
                                                  std::shared_ptr<const nn::Model> model,
                                                  exec::EngineOptions options) {
  TRI_ASSIGN(auto engine, exec::Engine::plan(model, options));
  if (config.recompute != Recompute::kAll) return engine;
  options.step = exec::with_all_recomputed(*engine, options.step);
  return exec::Engine::plan(std::move(model), options);
}

size_t threads_of(const Config& config) {
  return config.threads ? static_cast<size_t>(*config.threads) : read_machine("/").threads;
}

optim::Hyper hyper_of(const Config& config) {
  TRI_CHECK(config.lr && config.weight_decay);
  return {.lr = *config.lr,
          .momentum = config.momentum,
          .weight_decay = *config.weight_decay,
          .nesterov = config.nesterov};
}

}  // namespace tri::train
