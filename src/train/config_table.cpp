#include "train/config_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "nn/catalog.h"

namespace tri::train {
namespace {

constexpr char kModels[] =
#define TRI_MODEL(name, recipe) "|" name
#include "nn/model_list.inc"
#undef TRI_MODEL
    ;
constexpr char kOptimizers[] =
#define TRI_RULE(enumerator, name, moments, kernel) "|" name
#include "optim/rule_list.inc"
#undef TRI_RULE
    ;
constexpr char kDataSets[] =
#define TRI_READER(name, open, fallback, syntax, help) ", " syntax
#include "data/reader_list.inc"
#undef TRI_READER
    ;
constexpr std::string_view after(std::string_view separator, std::string_view list) {
  return list.substr(separator.size());
}

struct Reader {
  std::string_view name, fallback, syntax;
};
constexpr Reader kReaders[] = {
#define TRI_READER(name, open, fallback, syntax, help) {name, fallback, syntax},
#include "data/reader_list.inc"
#undef TRI_READER
};

std::string check_data(std::string_view text) {
  const size_t colon = text.find(':');
  const auto* const reader = std::ranges::find(kReaders, text.substr(0, colon), &Reader::name);
  if (reader == std::end(kReaders)) return fmt::format("give one of {}", after(", ", kDataSets));
  const bool complete =
      colon == std::string_view::npos ? !reader->fallback.empty() : colon + 1 < text.size();
  return complete ? "" : fmt::format("give {}", reader->syntax);
}

std::string check_memory(std::string_view text) {
  return base::parse_size(text) ? "" : "give a size such as 256MiB, 1G or 60%, or auto";
}

template <auto Member>
std::string read_member(std::string_view text, const Domain& domain, Config& config) {
  return read(text, domain, config.*Member);
}
template <auto Member>
std::string text_of_member(const Config& config, const Domain& domain) {
  return text_of(config.*Member, domain);
}
// For a string whose words another room reads: its check first.
template <auto Member, auto Check>
std::string read_checked(std::string_view text, const Domain& domain, Config& config) {
  std::string refusal = Check(text);
  return refusal.empty() ? read(text, domain, config.*Member) : refusal;
}

template <class T>
constexpr bool kBare =
    std::is_same_v<T, bool> || std::is_same_v<T, int64_t> || std::is_same_v<T, double> ||
    std::is_same_v<T, std::optional<int64_t>> || std::is_same_v<T, std::optional<double>>;

template <auto Member>
constexpr OptionRow row(std::string_view group, std::string_view key, std::string_view syntax,
                        std::string_view help, Range range = {}) {
  using Field = std::remove_reference_t<decltype(std::declval<Config&>().*Member)>;
  return {group,
          key,
          {syntax, range},
          help,
          kBare<Field>,
          &read_member<Member>,
          &text_of_member<Member>};
}
template <auto Member, auto Check>
constexpr OptionRow checked_row(std::string_view group, std::string_view key,
                                std::string_view syntax, std::string_view help) {
  OptionRow made = row<Member>(group, key, syntax, help);
  made.read = &read_checked<Member, Check>;
  return made;
}

// Bounds of counts are far above any use and low enough that no product of two overflows.
constexpr double kMostCount = 1e9;
constexpr Range kCount = {.low = 1, .high = kMostCount};
constexpr Range kCountOrZero = {.low = 0, .high = kMostCount};
constexpr Range kPositive = {.low = 0, .above_low = true};
constexpr Range kNotNegative = {.low = 0};
constexpr Range kShare = {.low = 0, .high = 1};
constexpr Range kBelowOne = {.low = 0, .high = 1, .below_high = true};
constexpr Range kPartOfOne = {.low = 0, .high = 1, .above_low = true};

constexpr std::string_view kModelAndData = "model and data";
constexpr std::string_view kMethod = "memory and method";
constexpr std::string_view kBatch = "batch";
constexpr std::string_view kOptimisation = "optimisation";
constexpr std::string_view kControl = "control";
constexpr std::string_view kRun = "run";
constexpr std::string_view kBench = "bench step";

// Also what the program added by tri::add_model().
std::string read_model(std::string_view text, const Domain& domain, Config& config) {
  const auto known = nn::catalog();
  if (std::ranges::find(known, text, &nn::CatalogEntry::name) == known.end()) {
    return read(text, domain, config.model);  // says which there are
  }
  config.model = text;
  return {};
}
constexpr OptionRow model_row() {
  OptionRow made =
      row<&Config::model>(kModelAndData, "model", after("|", kModels), "network to train");
  made.read = &read_model;
  return made;
}

using C = Config;
constexpr OptionRow kRows[] = {
    model_row(),
    row<&C::width>(kModelAndData, "width", "X", "multiplier of the model's channels",
                   {.low = 0, .high = nn::kMaxWidth, .above_low = true}),
    checked_row<&C::data, check_data>(kModelAndData, "data", "NAME[:ARGUMENT]",
                                      after(", ", kDataSets)),
    row<&C::pixels>(kModelAndData, "pixels", "auto|N",
                    "side of the input; images are resized to it", {.low = 1, .high = 65535}),
    row<&C::classes>(kModelAndData, "classes", "auto|N", "number of classes where there is no data",
                     {.low = 1, .high = 1e6}),
    row<&C::augment>(kModelAndData, "augment", "auto|none|LIST",
                     "random changes of images, such as crop4,flip,cutout8"),
    row<&C::val_split>(kModelAndData, "val-split", "SHARE",
                       "share of the training set held out to judge epochs by", kBelowOne),
    row<&C::train_count>(kModelAndData, "train-count", "auto|N",
                         "images to learn from, the same for every seed; auto: all", kCount),
    row<&C::dropout>(kModelAndData, "dropout", "auto|RATE",
                     "auto: the model's own; 0 switches it off", kBelowOne),
    row<&C::stochastic_depth>(kModelAndData, "stochastic-depth", "auto|RATE",
                              "auto: the model's own; 0 switches it off", kBelowOne),
    row<&C::init>(kModelAndData, "init", "FILE",
                  "safetensors file of weights to start from, torchvision's names"),

    checked_row<&C::memory, check_memory>(kMethod, "memory", "auto|SIZE",
                                          "ceiling of the whole process: 256MiB, 1G, 60%"),
    row<&C::method>(kMethod, "method", "triaccel|fp32|amp", "preset of the six options below"),
    row<&C::precision>(kMethod, "precision", "adaptive|fp32|bf16|fp16|fp16-169|fp8|hfp8|assign:R",
                       "formats of activations and gradients; R: share in low precision"),
    row<&C::weights>(kMethod, "weights", "bf16+8|bf16+16|fp16+8|bf16sr|fp32|fp32+bf16",
                     "how weights are stored"),
    row<&C::state>(kMethod, "state", "int8|bf16|fp32", "how optimizer state is stored"),
    row<&C::step>(kMethod, "step", "fused|after",
                  "update inside back-propagation, or when it is over"),
    row<&C::curvature>(kMethod, "curvature", "fisher|hessian|off",
                       "estimator behind the step size of each layer"),
    row<&C::batch_mode>(kMethod, "batch-mode", "elastic|micro|fixed",
                        "the batch adapts, only its micro-batches do, or nothing does"),
    row<&C::assign_order>(kMethod, "assign-order", "desc|asc|random",
                          "by size, which tensors get low precision first (assign:R)"),
    row<&C::assign_promote>(kMethod, "assign-promote", "SHARE|off",
                            "overflows that promote a tensor for good (assign:R)", kPartOfOne),
    row<&C::variance_rule>(kMethod, "variance-rule", "relative|absolute",
                           "thresholds against the median layer, or the paper's"),

    row<&C::batch>(kBatch, "batch", "N", "samples of a step, at the start",
                   {.low = 1, .high = 1e6}),
    row<&C::ghost_batch>(kBatch, "ghost-batch", "auto|N",
                         "samples that share batch-norm statistics, 0: all; auto: the largest "
                         "divisor of the batch up to 32, 0 with batch-mode fixed",
                         kCountOrZero),
    row<&C::batch_min>(kBatch, "batch-min", "auto|N", "auto: one ghost batch", kCount),
    row<&C::batch_max>(kBatch, "batch-max", "auto|N", "auto: 8 x batch", kCount),
    row<&C::noise_scale>(kBatch, "noise-scale", "on|off",
                         "stop growing where gradient noise says that it buys nothing"),

    row<&C::optimizer>(kOptimisation, "optimizer", after("|", kOptimizers), "update rule"),
    row<&C::lr>(kOptimisation, "lr", "auto|RATE",
                "rate of the first batch; auto: sgd 0.05, adam and adamw 0.001, lars 1, "
                "lamb 0.002",
                kPositive),
    row<&C::lr_rule>(kOptimisation, "lr-rule", "linear|sqrt|none",
                     "how the rate follows the batch"),
    row<&C::epochs>(kOptimisation, "epochs", "N", "length of the schedule",
                    {.low = 1, .high = 1e6}),
    row<&C::warmup>(kOptimisation, "warmup", "auto|EPOCHS",
                    "linear warm-up before the cosine; auto: 5, at most a third of epochs",
                    kNotNegative),
    row<&C::momentum>(kOptimisation, "momentum", "X", "of sgd and lars", kBelowOne),
    row<&C::nesterov>(kOptimisation, "nesterov", "", "Nesterov's momentum"),
    row<&C::weight_decay>(kOptimisation, "weight-decay", "auto|RATE",
                          "auto: sgd and lars 0.0005, adam 0, adamw and lamb 0.01", kNotNegative),
    row<&C::label_smoothing>(kOptimisation, "label-smoothing", "SHARE",
                             "of the target distribution", kBelowOne),
    row<&C::clip>(kOptimisation, "clip", "off|NORM",
                  "clip gradients; with the fused step by the norm of the step before", kPositive),
    row<&C::clip_exact>(kOptimisation, "clip-exact", "", "clip by the exact norm, in two passes"),
    row<&C::clip_layer>(kOptimisation, "clip-layer", "", "clip each parameter by its own norm"),
    row<&C::accumulate>(kOptimisation, "accumulate", "bf16|fp32",
                        "gradient buffer of micro-batches"),
    row<&C::patience>(kOptimisation, "patience", "off|EPOCHS",
                      "stop after so many without a new best", kCount),
    row<&C::max_steps>(kOptimisation, "max-steps", "off|N", "stop after so many steps",
                       {.low = 1, .high = 0x1p53}),

    row<&C::control_every>(kControl, "control-every", "N", "steps between decisions", kCount),
    row<&C::curvature_every>(kControl, "curvature-every", "N", "steps between estimates", kCount),
    row<&C::curvature_batch>(kControl, "curvature-batch", "N", "samples of an estimate",
                             {.low = 1, .high = 1e6}),
    row<&C::curvature_top>(kControl, "curvature-top", "N", "eigenvalues of an estimate",
                           {.low = 1, .high = 1e6}),
    row<&C::beta>(kControl, "beta", "X", "memory of the variance average", kBelowOne),
    row<&C::tau_low>(kControl, "tau-low", "auto|X", "variance below which a layer is FP16",
                     kNotNegative),
    row<&C::tau_high>(kControl, "tau-high", "auto|X", "variance from which a layer is FP32",
                      kNotNegative),
    row<&C::tau_curv>(kControl, "tau-curv", "auto|X",
                      "curvature that promotes a layer; auto: 2 / rate", kPositive),
    row<&C::alpha>(kControl, "alpha", "auto|X",
                   "weight of curvature in the step size; auto: rate / 2", kNotNegative),
    row<&C::rho_low>(kControl, "rho-low", "SHARE", "the batch grows below this use of the ceiling",
                     kShare),
    row<&C::rho_high>(kControl, "rho-high", "SHARE",
                      "the batch shrinks above this use of the ceiling", kPartOfOne),
    row<&C::delta_up>(kControl, "delta-up", "auto|N", "samples to grow by; auto: a ghost batch",
                      kCount),
    row<&C::delta_down>(kControl, "delta-down", "auto|N",
                        "samples to shrink by; auto: a ghost batch", kCount),

    row<&C::recompute>(kRun, "recompute", "auto|off|all",
                       "recompute activations instead of storing them"),
    row<&C::tune>(kRun, "tune", "", "choose kernels by measurement, recorded in the run"),
    row<&C::profile>(kRun, "profile", "FILE", "write a Chrome trace of a step"),
    row<&C::threads>(kRun, "threads", "auto|N", "auto: all the process may use",
                     {.low = 1, .high = 4096}),
    row<&C::seed>(kRun, "seed", "N", "of weights, order, augmentation and rounding",
                  {.low = 0, .high = 0x1p53}),
    row<&C::save_every>(kRun, "save-every", "STEPS|MINUTESm", "between checkpoints: 500, 5m"),
    row<&C::export_dtype>(kRun, "export-dtype", "fp32|bf16", "weights in model.safetensors"),
    row<&C::out>(kRun, "out", "DIR", "default: runs/MODEL-DATA-METHOD-SEED, numbered"),

    row<&C::steps>(kBench, "steps", "N", "steps to time", kCount),
    row<&C::direct>(kBench, "direct", "", "convolve without Winograd"),
};

// Levenshtein: letters to insert, remove or replace.
size_t edits(std::string_view a, std::string_view b) {
  std::vector<size_t> costs(b.size() + 1);
  std::iota(costs.begin(), costs.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(costs[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = costs[j + 1];
      costs[j + 1] = std::min({replaced, costs[j] + 1, diagonal + 1});
    }
  }
  return costs.back();
}

}  // namespace

std::span<const OptionRow> option_rows() { return kRows; }

const OptionRow* find_option(std::string_view key) {
  const auto rows = option_rows();
  const auto found = std::ranges::find(rows, key, &OptionRow::key);
  return found == rows.end() ? nullptr : &*found;
}

std::string_view nearest_option(std::string_view key) {
  key = key.substr(0, 64);  // no key is near that; bounds the work
  const auto rows = option_rows();
  const std::string_view nearest = std::ranges::min_element(rows, {}, [&](const OptionRow& row) {
                                     return edits(key, row.key);
                                   })->key;
  const size_t near = std::min(key.size(), nearest.size()) / 2;
  return edits(key, nearest) <= near ? nearest : std::string_view();
}

}  // namespace tri::train

namespace tri {

std::span<const ConfigOption> config_options() {
  static const std::vector<ConfigOption> kOptions = [] {
    std::vector<ConfigOption> options;
    for (const train::OptionRow& row : train::option_rows()) {
      options.push_back(
          {row.group, row.key, row.domain.syntax, row.text({}, row.domain), row.help});
    }
    return options;
  }();
  return kOptions;
}

}  // namespace tri
