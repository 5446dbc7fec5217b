#include "train/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tri::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RunState example_state() {
  RunState state;
  state.step = 1234;
  state.samples = (uint64_t{1} << 53) + 1;  // beyond what a double holds
  state.seconds = 0.1 + 0.2;
  state.seed = 7;
  state.simd_target = "AVX2";
  state.config_crc = 0xdeadbeef;
  state.loss_sum = 1.0 / 3;
  state.correct = 900;
  state.counted = 1000;
  state.epochs = 3;
  state.train_loss = std::nextafter(0.5, 1.0);
  state.best_judged = 0.75;
  state.epoch_seconds = {1.5, 1.0 / 7};
  state.ceiling_bytes = uint64_t{1} << 40;
  state.control.batch = 64;
  state.control.loss.scale = 65536;
  state.control.layers = {{.spread = 1e-9, .level = control::Level::kFp16, .why_wish = "why"}};
  state.control.assignment = {{true, false, true, true}};
  state.control.lambda = {1.0 / 3};
  state.control.noise = {2.5, -0.125};
  state.control.window = {.step = 3, .noise_scale = 0.1, .layers = {{.spread = 0.7}}};
  state.card = {.model = "convnet",
                .width = 0.25,
                .image = {28, 30, 1},
                .class_names = {"Pullover", "\"quoted\"", "\xc3\xa4"},
                .data = "folder:/a b",
                .val_split = 0.1,
                .weights = "bf16+8",
                .table = {control::row_of(control::Level::kBf16)},
                .normalisation = {{0.1f}, {0.3f}},
                .kernels = {{ops::Kernel::kWinograd, ops::Kernel::kJoined}}};
  return state;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(RunState, ReadsBackToTheSameBits) {
  const auto back = parse_state(to_json(example_state()), "state.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(*back, example_state());
}

TEST(RunState, ASumThatIsNotFiniteSurvives) {
  RunState state = example_state();
  state.loss_sum = std::numeric_limits<double>::infinity();
  const auto back = parse_state(to_json(state), "state.json");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_FALSE(std::isfinite(back->loss_sum));
}

TEST(RunState, DamageIsASentence) {
  const std::string good = to_json(example_state());
  const std::string bad[] = {"",
                             "[]",
                             good.substr(0, good.size() / 2),
                             replaced(good, "\"version\": 3", "\"version\": 4"),
                             replaced(good, "\"step\": 1234", "\"step\": \"many\""),
                             replaced(good, "\"channels\": 1", "\"channels\": 0"),
                             replaced(good, "\"samples\"", "\"simples\"")};
  for (const std::string& text : bad) {
    const auto read = parse_state(text, "last/state.json");
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code, ErrorCode::kFailed);
    EXPECT_THAT(read.error().message, AllOf(HasSubstr("last/state.json"), HasSubstr("another")));
  }
}

TEST(RunState, CrcSeesWhatMattersOnly) {
  Config config;
  config.data = "cifar10:/here";
  const uint32_t before = config_crc(config);
  Config moved = config;
  moved.data = "cifar10:/there";
  moved.threads = 3;
  moved.max_steps = 5;
  moved.memory = "1G";
  moved.out = "elsewhere";
  EXPECT_EQ(config_crc(moved), before);
  Config other = config;
  other.lr = 0.3;
  EXPECT_NE(config_crc(other), before);
  other = config;
  other.data = "cifar100:/here";
  EXPECT_NE(config_crc(other), before);
  Config made = config, made_otherwise = config;
  made.data = "synthetic:4,16,100";
  made_otherwise.data = "synthetic:4,16,101";
  EXPECT_NE(config_crc(made), config_crc(made_otherwise));
}

}  // namespace
}  // namespace tri::train
