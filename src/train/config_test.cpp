#include "tri/config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "base/draws.h"
#include "checkpoint/scratch_directory.h"
#include "train/config_rules.h"
#include "train/config_table.h"

namespace tri {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Pairs = std::vector<std::pair<std::string, std::string>>;

Result<ResolvedConfig> resolve(const Pairs& options) {
  ConfigBuilder builder;
  for (const auto& [key, text] : options) TRI_TRY(builder.set(key, text));
  return builder.resolve();
}

Config config_of(const Pairs& options) { return resolve(options).value().config; }

std::string refusal(const Pairs& options) {
  const auto resolved = resolve(options);
  if (resolved) return "accepted";
  EXPECT_EQ(resolved.error().code, ErrorCode::kInvalid);
  return resolved.error().message;
}

std::string toml_refusal(std::string_view text) {
  ConfigBuilder builder;
  const Result<void> read = builder.read_toml(text, "run.toml");
  if (read) return "accepted";
  EXPECT_EQ(read.error().code, ErrorCode::kInvalid);
  return read.error().message;
}

Origin origin_of(const ResolvedConfig& resolved, std::string_view key) {
  const auto options = config_options();
  for (size_t i = 0; i < options.size(); ++i) {
    if (options[i].key == key) return resolved.origins[i];
  }
  ADD_FAILURE() << key;
  return Origin::kDefault;
}

TEST(ConfigOptions, CoverTheContract) {
  std::set<std::string_view> keys;
  for (const ConfigOption& option : config_options()) {
    EXPECT_TRUE(keys.insert(option.key).second) << option.key;
    EXPECT_FALSE(option.help.empty()) << option.key;
  }
  for (const std::string_view key : {"model",
                                     "width",
                                     "data",
                                     "pixels",
                                     "classes",
                                     "train-count",
                                     "dropout",
                                     "stochastic-depth",
                                     "memory",
                                     "method",
                                     "precision",
                                     "assign-order",
                                     "assign-promote",
                                     "variance-rule",
                                     "weights",
                                     "state",
                                     "step",
                                     "curvature",
                                     "curvature-every",
                                     "curvature-batch",
                                     "curvature-top",
                                     "ghost-batch",
                                     "batch-mode",
                                     "batch",
                                     "lr",
                                     "lr-rule",
                                     "epochs",
                                     "warmup",
                                     "optimizer",
                                     "momentum",
                                     "nesterov",
                                     "weight-decay",
                                     "label-smoothing",
                                     "augment",
                                     "val-split",
                                     "patience",
                                     "max-steps",
                                     "init",
                                     "clip",
                                     "clip-exact",
                                     "clip-layer",
                                     "accumulate",
                                     "batch-min",
                                     "batch-max",
                                     "noise-scale",
                                     "recompute",
                                     "tune",
                                     "profile",
                                     "save-every",
                                     "control-every",
                                     "beta",
                                     "tau-low",
                                     "tau-high",
                                     "tau-curv",
                                     "alpha",
                                     "rho-low",
                                     "rho-high",
                                     "delta-up",
                                     "delta-down",
                                     "out",
                                     "threads",
                                     "seed",
                                     "export-dtype",
                                     "steps",
                                     "direct"}) {
    EXPECT_EQ(keys.erase(key), 1U) << key;
  }
  EXPECT_THAT(keys, testing::IsEmpty());
}

// The words of a syntax are all accepted and come back as themselves; so is every default.
TEST(ConfigOptions, ReadWhatTheySay) {
  for (const train::OptionRow& row : train::option_rows()) {
    Config config;
    const std::string fallback = row.text(config, row.domain);
    EXPECT_EQ(row.read(fallback, row.domain, config), "") << row.key;
    EXPECT_EQ(config, Config{}) << row.key;
    for (size_t i = 0; i < 20; ++i) {
      const auto words = static_cast<size_t>(std::ranges::count(row.domain.syntax, '|')) + 1;
      if (i >= words) break;
      const std::string word(train::word_at(row.domain.syntax, i));
      if (word.empty() || std::ranges::any_of(word, [](char c) { return c >= 'A' && c <= 'Z'; })) {
        continue;
      }
      EXPECT_EQ(row.read(word, row.domain, config), "") << row.key << " " << word;
      EXPECT_EQ(row.text(config, row.domain), word) << row.key;
    }
  }
}

TEST(Config, EnumsFollowTheirWords) {
  EXPECT_EQ(config_of({{"method", "amp"}}).method, Method::kAmp);
  EXPECT_EQ(config_of({{"step", "after"}}).step, UpdateTime::kAfter);
  EXPECT_EQ(config_of({{"curvature", "hessian"}}).curvature, Curvature::kHessian);
  EXPECT_EQ(config_of({{"batch-mode", "micro"}}).batch_mode, BatchMode::kMicro);
  EXPECT_EQ(config_of({{"lr-rule", "none"}}).lr_rule, LrRule::kNone);
  EXPECT_EQ(config_of({{"recompute", "all"}}).recompute, Recompute::kAll);
  EXPECT_EQ(config_of({{"assign-order", "random"}}).assign_order, AssignOrder::kRandom);
  EXPECT_EQ(config_of({{"variance-rule", "absolute"}}).variance_rule, VarianceRule::kAbsolute);
  EXPECT_EQ(config_of({{"precision", "hfp8"}}).precision.policy, Precision::Policy::kHfp8);
  EXPECT_EQ(config_of({{"precision", "fp16-169"}}).precision.policy, Precision::Policy::kFp16x169);
  EXPECT_EQ(name(Method::kFp32), "fp32");
}

TEST(Config, DefaultsAreTriaccel) {
  const auto resolved = resolve({}).value();
  EXPECT_EQ(resolved.config.precision, (Precision{Precision::Policy::kAdaptive, 0}));
  EXPECT_EQ(resolved.config.batch, 96);
  EXPECT_EQ(resolved.config.ghost_batch, 32);
  EXPECT_EQ(resolved.config.batch_min, 32);
  EXPECT_EQ(resolved.config.batch_max, 768);
  EXPECT_EQ(resolved.config.delta_up, 32);
  EXPECT_EQ(resolved.config.lr, 0.05);
  EXPECT_EQ(resolved.config.warmup, 5.0);
  EXPECT_EQ(resolved.config.save_every, (SaveInterval{0, 5}));
  EXPECT_EQ(origin_of(resolved, "weights"), Origin::kPreset);
  EXPECT_EQ(origin_of(resolved, "lr"), Origin::kDerived);
  EXPECT_EQ(origin_of(resolved, "momentum"), Origin::kDefault);
}

TEST(Config, PresetsFillSixOptions) {
  const Config fp32 = config_of({{"method", "fp32"}});
  EXPECT_EQ(fp32.precision.policy, Precision::Policy::kFp32);
  EXPECT_EQ(fp32.weights, "fp32");
  EXPECT_EQ(fp32.state, "fp32");
  EXPECT_EQ(fp32.step, UpdateTime::kAfter);
  EXPECT_EQ(fp32.curvature, Curvature::kOff);
  EXPECT_EQ(fp32.batch_mode, BatchMode::kFixed);
  EXPECT_EQ(fp32.ghost_batch, 0);
  const Config amp = config_of({{"method", "amp"}});
  EXPECT_EQ(amp.precision.policy, Precision::Policy::kBf16);
  EXPECT_EQ(amp.weights, "fp32+bf16");
  EXPECT_EQ(amp.state, "fp32");
}

TEST(Config, ExplicitOptionsOverrideThePreset) {
  ConfigBuilder builder;
  ASSERT_TRUE(builder.read_toml("state = 'bf16'", "f"));
  ASSERT_TRUE(builder.set("batch-mode", "micro"));
  ASSERT_TRUE(builder.set("method", "fp32"));
  const ResolvedConfig resolved = builder.resolve().value();
  EXPECT_EQ(resolved.config.state, "bf16");
  EXPECT_EQ(resolved.config.batch_mode, BatchMode::kMicro);
  EXPECT_EQ(resolved.config.weights, "fp32");
  EXPECT_EQ(origin_of(resolved, "state"), Origin::kFile);
  EXPECT_EQ(origin_of(resolved, "batch-mode"), Origin::kCommandLine);
  EXPECT_EQ(origin_of(resolved, "weights"), Origin::kPreset);
}

// Whatever the order of reading, the command line beats the environment beats the file.
TEST(Config, PrecedenceDoesNotDependOnTheOrder) {
  const std::map<std::string, const char*> environment = {{"TRIACCEL_EPOCHS", "3"},
                                                          {"TRIACCEL_LR_RULE", "sqrt"}};
  const auto lookup = [&](const std::string& name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second;
  };
  std::vector<int> order = {0, 1, 2};
  do {
    ConfigBuilder builder;
    for (const int source : order) {
      const Result<void> read =
          source == 0   ? builder.read_toml("epochs = 2\nlr-rule = 'none'\nseed = 7", "f")
          : source == 1 ? builder.read_environment(lookup)
                        : builder.set_pair("epochs=4");
      ASSERT_TRUE(read);
    }
    const ResolvedConfig resolved = builder.resolve().value();
    EXPECT_EQ(resolved.config.epochs, 4);
    EXPECT_EQ(resolved.config.lr_rule, LrRule::kSqrt);
    EXPECT_EQ(resolved.config.seed, 7);
    EXPECT_EQ(origin_of(resolved, "epochs"), Origin::kCommandLine);
    EXPECT_EQ(origin_of(resolved, "lr-rule"), Origin::kEnvironment);
    EXPECT_EQ(origin_of(resolved, "seed"), Origin::kFile);
  } while (std::ranges::next_permutation(order).found);
}

TEST(Config, ReadsThisProcesssEnvironment) {
  ASSERT_EQ(setenv("TRIACCEL_BATCH_MIN", "many", 1), 0);
  ConfigBuilder builder;
  const Result<void> read = builder.read_environment();
  unsetenv("TRIACCEL_BATCH_MIN");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, AllOf(HasSubstr("TRIACCEL_BATCH_MIN is 'many'"),
                                          HasSubstr("a whole number of at least 1")));
}

TEST(Config, GhostBatchIsTheLargestDivisorUpTo32) {
  for (const auto& [batch, ghost] :
       {std::pair{96, 32}, {100, 25}, {64, 32}, {33, 11}, {20, 20}, {1, 1}, {97, 1}, {48, 24}}) {
    const std::string text = std::to_string(batch);
    EXPECT_EQ(config_of({{"batch", text}}).ghost_batch, ghost) << batch;
    EXPECT_EQ(config_of({{"batch", text}, {"batch-mode", "micro"}}).ghost_batch, ghost) << batch;
    EXPECT_EQ(config_of({{"batch", text}, {"batch-mode", "fixed"}}).ghost_batch, 0) << batch;
  }
  EXPECT_EQ(config_of({{"ghost-batch", "48"}}).ghost_batch, 48);
  EXPECT_EQ(config_of({{"ghost-batch", "0"}}).ghost_batch, 0);
}

TEST(Config, RatesFollowTheOptimizer) {
  EXPECT_EQ(config_of({{"optimizer", "adam"}}).lr, 0.001);
  EXPECT_EQ(config_of({{"optimizer", "adam"}}).weight_decay, 0.0);
  EXPECT_EQ(config_of({{"optimizer", "adamw"}}).weight_decay, 0.01);
  EXPECT_EQ(config_of({{"optimizer", "lamb"}, {"lr", "0.5"}}).lr, 0.5);
  EXPECT_EQ(config_of({{"epochs", "3"}}).warmup, 1.0);
}

TEST(Config, PrecisionGrammar) {
  const Precision half = config_of({{"precision", "assign:0.5"}}).precision;
  EXPECT_EQ(half, (Precision{Precision::Policy::kAssign, 0.5}));
  for (const char* const good : {"assign:0", "assign:1", "assign:1e-3"}) {
    EXPECT_EQ(refusal({{"precision", good}}), "accepted") << good;
  }
  for (const char* const bad : {"assign:", "assign:1.01", "assign:-0.1", "assign:nan", "assign:R",
                                "assign", "assign:0.5x", "fp64", ""}) {
    EXPECT_THAT(refusal({{"precision", bad}}), HasSubstr("assign:R")) << bad;
  }
}

TEST(Config, SaveInterval) {
  EXPECT_EQ(config_of({{"save-every", "500"}}).save_every, (SaveInterval{500, 0}));
  EXPECT_EQ(config_of({{"save-every", "0.5m"}}).save_every, (SaveInterval{0, 0.5}));
  for (const char* const bad : {"0", "-1", "m", "0m", "5 m", "5h", "nanm", "infm"}) {
    EXPECT_THAT(refusal({{"save-every", bad}}), HasSubstr("such as 5m")) << bad;
  }
}

TEST(Config, SaysWhatIsWrongWithOneValue) {
  EXPECT_EQ(refusal({{"batch", "0"}}),
            "--batch is '0'; give a whole number of at least 1 and at most 1000000");
  EXPECT_EQ(refusal({{"lr", "-1"}}), "--lr is '-1'; give a number above 0 or auto");
  EXPECT_EQ(refusal({{"step", "fusd"}}), "--step is 'fusd'; give fused or after");
  EXPECT_EQ(refusal({{"dropout", "1"}}),
            "--dropout is '1'; give a number of at least 0 and below 1 or auto");
  EXPECT_EQ(refusal({{"memory", "12Q"}}),
            "--memory is '12Q'; give a size such as 256MiB, 1G or 60%, or auto");
  EXPECT_EQ(refusal({{"noise-scale", "maybe"}}), "--noise-scale is 'maybe'; give on or off");
  EXPECT_EQ(refusal({{"data", "cifar10"}}), "--data is 'cifar10'; give cifar10:DIR");
  EXPECT_THAT(refusal({{"data", "imagenet"}}), HasSubstr("give one of fashion-mnist[:DIR], mnist"));
  EXPECT_THAT(refusal({{"model", "resnet19"}}), HasSubstr("resnet18, resnet18-cifar"));
  EXPECT_THAT(refusal({{"lr", "inf"}}), HasSubstr("a number above 0"));
  EXPECT_THAT(refusal({{"epochs", "1.5"}}), HasSubstr("a whole number"));
  EXPECT_THAT(refusal({{"epochs", "99999999999999999999"}}), HasSubstr("a whole number"));
  EXPECT_THAT(refusal({{"out", "a\nb"}}), HasSubstr("--out is 'a?b'; give UTF-8 text"));
  EXPECT_THAT(refusal({{"out", "\xff"}}), HasSubstr("give UTF-8 text"));
  EXPECT_EQ(refusal({{"out", "gr\xc3\xbc\xc3\x9f"}}), "accepted");
}

TEST(Config, SaysWhyOptionsDoNotGoTogether) {
  EXPECT_EQ(refusal({{"ghost-batch", "30"}}),
            "--ghost-batch 30 does not divide --batch 96; give a divisor such as 24");
  EXPECT_EQ(refusal({{"batch-min", "33"}}),
            "--batch-min 33 is not a multiple of the ghost batch of 32; give one or another "
            "--ghost-batch");
  EXPECT_EQ(refusal({{"batch-max", "64"}}),
            "--batch 96 is not within --batch-min 32 and --batch-max 64; widen the bounds or start "
            "between them");
  EXPECT_EQ(refusal({{"batch-max", "64"}, {"batch-mode", "fixed"}}), "accepted");
  EXPECT_EQ(refusal({{"warmup", "20"}}),
            "--warmup 20 is longer than --epochs 15; give fewer epochs of warm-up");
  EXPECT_EQ(refusal({{"rho-low", "0.9"}}),
            "--rho-low 0.9 is not below --rho-high 0.9; give a smaller one");
  EXPECT_THAT(refusal({{"tau-low", "2"}, {"tau-high", "1"}}),
              HasSubstr("--tau-low 2 is not below"));
  EXPECT_THAT(refusal({{"curvature-top", "33"}}), HasSubstr("--curvature-batch 32 can show"));
  EXPECT_THAT(refusal({{"nesterov", "true"}, {"optimizer", "adam"}}), HasSubstr("--nesterov"));
  EXPECT_THAT(refusal({{"nesterov", "true"}, {"momentum", "0"}}), HasSubstr("--momentum 0"));
  EXPECT_THAT(refusal({{"clip-exact", "true"}}), HasSubstr("give --clip NORM"));
  EXPECT_THAT(refusal({{"clip-exact", "true"}, {"clip-layer", "on"}, {"clip", "1"}}),
              HasSubstr("choose one"));
}

TEST(Config, NamesTheNearestKey) {
  EXPECT_EQ(refusal({{"epoch", "3"}}),
            "--epoch: there is no option 'epoch'; did you mean 'epochs'?");
  EXPECT_EQ(refusal({{"nokey", "3"}}), "--nokey: there is no option 'nokey'; --help lists them");
  ConfigBuilder builder;
  EXPECT_EQ(builder.set_pair("lr_rule=none").error().message,
            "--set lr_rule: there is no option 'lr_rule'; did you mean 'lr-rule'?");
  EXPECT_THAT(builder.set_pair("epochs").error().message, HasSubstr("give key=value"));
  EXPECT_EQ(toml_refusal("# runs\nbatch = 64\nwieghts = 'fp32'\n"),
            "'run.toml' line 3: there is no option 'wieghts'; did you mean 'weights'?");
}

TEST(ConfigToml, NamesTheLineOfAMistake) {
  EXPECT_EQ(toml_refusal("\nepochs = 'ten'"),
            "'run.toml' line 2: epochs is 'ten'; give a whole number of at least 1 and at most "
            "1000000");
  EXPECT_THAT(toml_refusal("epochs = \n"), HasSubstr("'run.toml' line 1: "));
  EXPECT_THAT(toml_refusal("lr = [1]"), HasSubstr("lr is a table, a list or a date"));
  EXPECT_THAT(toml_refusal("[train]\nlr = 1"), HasSubstr("there is no option 'train'"));
  EXPECT_THAT(toml_refusal("lr = 1\nlr = 2"), HasSubstr("line 2"));
  EXPECT_THAT(toml_refusal("lr = 1\r\n\tseed\t= 2\n#\xff"), HasSubstr("line 3"));
  // What toml++ 3.3 alone would not survive.
  for (const std::string_view bad : {"[/a", "[.", "[\xff", "[[", "[\x01"}) {
    EXPECT_THAT(toml_refusal(bad), HasSubstr("line 1")) << bad;
  }
  EXPECT_THAT(toml_refusal("lr = \xc8\x94"), HasSubstr("line 1"));
  EXPECT_EQ(toml_refusal("out = \"\"\"\\\n\xc2\xa7\"\"\""), "accepted");
  EXPECT_THAT(toml_refusal(std::string(2 << 20, '#')), HasSubstr("bytes"));
}

TEST(ConfigToml, TakesNumbersSwitchesAndText) {
  ConfigBuilder builder;
  ASSERT_TRUE(
      builder.read_toml("lr = 1\nmomentum = '0.5'\nnesterov = true\nnoise-scale = false\n"
                        "patience = 'off'\nthreads = 2\nsave-every = 100",
                        "f"));
  const Config config = builder.resolve().value().config;
  EXPECT_EQ(config.lr, 1.0);
  EXPECT_EQ(config.momentum, 0.5);
  EXPECT_TRUE(config.nesterov);
  EXPECT_FALSE(config.noise_scale);
  EXPECT_EQ(config.patience, std::nullopt);
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.save_every.steps, 100);
}

TEST(ConfigToml, SaysWhyAFileCannotBeRead) {
  const checkpoint::ScratchDirectory scratch;
  for (const std::string& path : {scratch / "none.toml", scratch / "."}) {
    ConfigBuilder builder;
    const Result<void> read = builder.read_file(path);
    ASSERT_FALSE(read) << path;
    EXPECT_THAT(read.error().message, AllOf(HasSubstr(path), HasSubstr("directory")));
  }
  std::ofstream(scratch / "run.toml") << "seed = 5\n";
  ConfigBuilder builder;
  ASSERT_TRUE(builder.read_file(scratch / "run.toml"));
  EXPECT_EQ(builder.resolve().value().config.seed, 5);
  std::ofstream(scratch / "empty.toml").flush();
  EXPECT_TRUE(builder.read_file(scratch / "empty.toml"));
}

TEST(ConfigToml, SaysWhereValuesCameFrom) {
  const std::string text = to_toml(resolve({{"out", "a \"b\" \\c"}, {"method", "amp"}}).value());
  EXPECT_THAT(text, HasSubstr("out = \"a \\\"b\\\" \\\\c\""));
  EXPECT_THAT(text, HasSubstr("# command line"));
  EXPECT_THAT(text, HasSubstr("state = \"fp32\"                   # preset of the method"));
  EXPECT_THAT(text, HasSubstr("# follows from other options"));
}

// Any accepted configuration survives config.toml, and its derived values stay.
TEST(ConfigToml, RoundTripsExactly) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    ConfigBuilder builder;
    const auto tries = draw.in(0, 40);
    for (int i = 0; i < tries; ++i) {
      const train::OptionRow& row = draw.of(train::option_rows());
      const auto words = static_cast<size_t>(std::ranges::count(row.domain.syntax, '|')) + 1;
      const double real = static_cast<double>(draw.in(1, 1'000'000)) / 999'983;
      const std::string texts[] = {
          std::string(train::word_at(row.domain.syntax, draw.in<size_t>(0, words))),
          std::to_string(draw.in(0, 200)),
          fmt::format("{}", real),
          fmt::format("assign:{}", real),
          fmt::format("{}m", real),
          std::string("a\"\\ \xc3\xbc")};
      ConfigBuilder more = builder;
      if (more.set(row.key, draw.of(texts)) && more.resolve()) builder = more;
    }
    const auto resolved = builder.resolve();
    ASSERT_TRUE(resolved);
    for (const std::string& text : {to_toml(resolved->config), to_toml(*resolved)}) {
      ConfigBuilder again;
      const Result<void> read = again.read_toml(text, "config.toml");
      ASSERT_TRUE(read) << text;
      EXPECT_TRUE(again.resolve().value().config == resolved->config) << text;
    }
  }
}

}  // namespace
}  // namespace tri
