#pragma once
// Door of room train: everything a run can be told. In: words from a TOML file, the environment and
// the command line. Out: one Config of checked values, and where each came from. Opens no data and
// asks no machine: what depends on them (`auto`) stays unset.
//
// The options are one table (config_options()): reading, help, config.toml and the command line's
// flags all come from it.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tri/result.h"

namespace tri {

// The words of each are those of the option's syntax, in the same order.
enum class Method : uint8_t { kTriaccel, kFp32, kAmp };
enum class AssignOrder : uint8_t { kDescending, kAscending, kRandom };
enum class VarianceRule : uint8_t { kRelative, kAbsolute };
enum class UpdateTime : uint8_t { kFused, kAfter };  // inside back-propagation, or when it is over
enum class Curvature : uint8_t { kFisher, kHessian, kOff };
enum class BatchMode : uint8_t { kElastic, kMicro, kFixed };
enum class LrRule : uint8_t { kLinear, kSqrt, kNone };
enum class Recompute : uint8_t { kAuto, kOff, kAll };

struct Precision {
  enum class Policy : uint8_t { kAdaptive, kFp32, kBf16, kFp16, kFp16x169, kFp8, kHfp8, kAssign };
  Policy policy = Policy::kAdaptive;
  double low_share = 0;  // kAssign: share in low precision, in [0, 1]; otherwise 0

  bool operator==(const Precision&) const = default;
};

// Exactly one of the two is above 0.
struct SaveInterval {
  int64_t steps = 0;
  double minutes = 5;

  bool operator==(const SaveInterval&) const = default;
};

// Strings hold names that other rooms own; those marked * were checked against their lists. "None"
// is what `auto` or `off` reads to; resolve() fills the fields marked +.
struct Config {
  std::string model = "resnet18";      // *
  double width = 1;                    // multiplier
  std::string data = "fashion-mnist";  // * NAME or NAME:ARGUMENT
  std::optional<int64_t> pixels;       // none: as the data
  std::optional<int64_t> classes;      // none: as the data
  std::string augment = "auto";
  double val_split = 0;
  std::optional<int64_t> train_count;      // none: the whole training set
  std::optional<double> dropout;           // none: the model's own
  std::optional<double> stochastic_depth;  // none: the model's own
  std::string init;                        // a safetensors file; empty: from the seed

  std::string memory = "auto";  // * a size as base::parse_size() reads it
  Method method = Method::kTriaccel;
  Precision precision;
  std::string weights = "bf16+8";  // *
  std::string state = "int8";      // *
  UpdateTime step = UpdateTime::kFused;
  Curvature curvature = Curvature::kFisher;
  BatchMode batch_mode = BatchMode::kElastic;

  AssignOrder assign_order = AssignOrder::kDescending;
  std::optional<double> assign_promote = 0.01;  // share of overflows; none: off
  VarianceRule variance_rule = VarianceRule::kRelative;
  int64_t curvature_every = 200;
  int64_t curvature_batch = 32;
  int64_t curvature_top = 5;

  int64_t batch = 96;
  std::optional<int64_t> ghost_batch;  // + 0: the whole batch
  std::optional<int64_t> batch_min;    // +
  std::optional<int64_t> batch_max;    // +
  bool noise_scale = true;

  std::string optimizer = "sgd";  // *
  std::optional<double> lr;       // +
  LrRule lr_rule = LrRule::kLinear;
  int64_t epochs = 15;
  std::optional<double> warmup;  // + epochs
  double momentum = 0.9;
  bool nesterov = false;
  std::optional<double> weight_decay;  // +
  double label_smoothing = 0;
  std::optional<double> clip;  // none: off
  bool clip_exact = false;
  bool clip_layer = false;
  std::string accumulate = "bf16";   // *
  std::optional<int64_t> patience;   // epochs; none: off
  std::optional<int64_t> max_steps;  // none: off

  int64_t control_every = 50;
  double beta = 0.9;
  std::optional<double> tau_low;  // these four: none for the defaults of room control
  std::optional<double> tau_high;
  std::optional<double> tau_curv;
  std::optional<double> alpha;
  double rho_low = 0.7;
  double rho_high = 0.9;
  std::optional<int64_t> delta_up;    // +
  std::optional<int64_t> delta_down;  // +

  Recompute recompute = Recompute::kAuto;
  bool tune = false;
  std::string profile;             // a file for a Chrome trace; empty: none
  std::optional<int64_t> threads;  // none: all that the process may use
  int64_t seed = 0;
  SaveInterval save_every;
  std::string export_dtype = "fp32";  // *
  std::string out;                    // a directory; empty: see train/run_directory.h
  int64_t steps = 20;                 // of `bench step`
  bool direct = false;                // `bench step` without Winograd

  bool operator==(const Config&) const = default;
};

// One row of the table, as help and command line see it.
struct ConfigOption {
  std::string_view group;   // heading in help and files
  std::string_view key;     // in TOML and --set; --KEY on the command line
  std::string_view syntax;  // "fused|after", "RATE|auto"; empty: a flag that needs no value
  std::string fallback;     // the default, as text
  std::string_view help;
};
std::span<const ConfigOption> config_options();

// Who set a value, weakest first.
enum class Origin : uint8_t { kDefault, kDerived, kPreset, kFile, kEnvironment, kCommandLine };

struct ResolvedConfig {
  Config config;
  std::vector<Origin> origins;  // parallel to config_options()
};

// Gathers values in any order; a stronger origin wins, and of two equal ones the later. Every
// refusal is kInvalid and names the option as the user wrote it.
class ConfigBuilder {
 public:
  ConfigBuilder();

  Result<void> set(std::string_view key, std::string_view text,
                   Origin origin = Origin::kCommandLine);
  Result<void> set_pair(std::string_view pair);  // `key=value`, as --set takes it

  // `name` stands for the text in messages, which also give the line.
  Result<void> read_toml(std::string_view text, const std::string& name);
  Result<void> read_file(const std::string& path);

  // By environment_name(). `lookup` returns null for what is not set.
  using Lookup = std::function<const char*(const std::string& name)>;
  Result<void> read_environment(const Lookup& lookup);
  Result<void> read_environment();  // of this process

  // Fills in the preset of --method where nothing stronger spoke, derives what follows from other
  // values, and checks the values against each other.
  Result<ResolvedConfig> resolve() const;

 private:
  Result<void> assign(std::string_view key, std::string_view text, Origin origin,
                      const std::string& where);

  Config config_;
  std::vector<Origin> origins_;
};

// A complete TOML file: reading and resolving it gives the same Config again. With origins, each
// line says where its value came from.
std::string to_toml(const Config& config);
std::string to_toml(const ResolvedConfig& resolved);
// The same as a JSON object, numbers and switches as such.
std::string to_json(const Config& config);

// TRIACCEL_LR_RULE for lr-rule.
std::string environment_name(std::string_view key);

// The word of a method: a part of run names and of summary.json.
std::string_view name(Method method);

}  // namespace tri
