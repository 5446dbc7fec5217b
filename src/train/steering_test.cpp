// Whole runs under the governor: that they resume bit for bit, say what they do, and stay within
// their bounds.
#include "train/steering.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/scratch_directory.h"
#include "tri/replay.h"
#include "tri/session.h"

namespace tri::train {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

class SteeringTest : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_ / name; }

  // Small enough for milliseconds; windows of 2 steps.
  TrainOutcome run(const std::string& name, const Settings& more) {
    Settings settings = {{"method", "triaccel"},
                         {"curvature", "off"},
                         {"model", "convnet"},
                         {"width", "0.1"},
                         {"data", "synthetic:3,9,90"},
                         {"batch", "16"},
                         {"ghost-batch", "8"},
                         {"epochs", "4"},
                         {"lr", "0.02"},
                         {"threads", "2"},
                         {"seed", "5"},
                         {"memory", "2G"},
                         {"control-every", "2"},
                         {"out", at(name)}};
    settings.insert(settings.end(), more.begin(), more.end());
    ConfigBuilder builder;
    for (const auto& [key, text] : settings) EXPECT_TRUE(builder.set(key, text)) << key;
    const auto resolved = builder.resolve();
    EXPECT_TRUE(resolved) << resolved.error().message;
    const auto outcome = run_training(*resolved, {});
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome.value_or({});
  }

  std::vector<Json> events(const std::string& name, std::string_view kind) const {
    std::ifstream file(at(name) + "/metrics.jsonl");
    std::vector<Json> all;
    for (std::string line; std::getline(file, line);) {
      if (Json event = Json::parse(line); event["event"] == kind) all.push_back(std::move(event));
    }
    return all;
  }

  std::set<std::string> changed(const std::string& name) const {
    std::set<std::string> what;
    for (const Json& event : events(name, "control")) {
      for (const Json& change : event["changes"]) {
        EXPECT_FALSE(change["reason"].get<std::string>().empty());
        const auto word = change["what"].get<std::string>();
        what.insert(word.substr(0, word.find(' ')));
      }
    }
    return what;
  }

  // Everything that a checkpoint holds but times and the panel's numbers.
  Json state(const std::string& name) const {
    Json json = Json::parse(content_of(at(name) + "/checkpoints/last/state.json"));
    for (const char* clock :
         {"seconds", "train_seconds", "epoch_seconds", "images_per_second", "control_seconds"}) {
      json.erase(clock);
    }
    json.erase("engine_peak_bytes");  // measured in the processes it had
    json.erase("process_peak_bytes");
    json.erase("base_bytes");  // of this process, and with it what is in use
    json["control"]["window"].erase("used_bytes");
    return json;
  }

  // All parameters of the last checkpoint; running statistics are none.
  std::vector<float> weights(const std::string& name) const {
    const std::string file = content_of(at(name) + "/checkpoints/last/model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    std::vector<float> all;
    const Json header = Json::parse(file.substr(8, length));
    for (const auto& [tensor, entry] : header.items()) {
      if (tensor == "__metadata__" || entry["dtype"] != "F32" ||
          tensor.find("running") != std::string::npos) {
        continue;
      }
      const size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      const size_t at = all.size();
      all.resize(at + (end - begin) / sizeof(float));
      std::memcpy(all.data() + at, file.data() + 8 + length + begin, end - begin);
    }
    return all;
  }

  checkpoint::ScratchDirectory folder_;
};

struct Mode {
  const char* name;
  Settings settings;
  std::string must_change = {};  // what the whole run is to decide at least once, or nothing
};

class SteeredResumeTest : public SteeringTest, public testing::WithParamInterface<Mode> {};

TEST_P(SteeredResumeTest, IsExact) {
  Settings cut = GetParam().settings;
  run("whole", cut);
  if (!GetParam().must_change.empty()) {
    EXPECT_TRUE(changed("whole").contains(GetParam().must_change));
  }
  for (const char* steps : {"3", "6"}) {  // inside a window, and at its end
    cut.emplace_back("max-steps", steps);
    const std::string name = std::string("parts") + steps;
    run(name, cut);
    const auto outcome = resume_training(at(name), {{"max-steps", "off"}, {"threads", "1"}}, {});
    ASSERT_TRUE(outcome) << outcome.error().message;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(content_of(at("whole") + "/checkpoints/last/" + file),
                content_of(at(name) + "/checkpoints/last/" + file))
          << file;
    }
    EXPECT_EQ(state("whole"), state(name));
    cut.pop_back();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, SteeredResumeTest,
    testing::Values(
        // Thresholds close together, so that layers move.
        Mode{"adaptive_elastic",
             {{"tau-low", "0.9"}, {"tau-high", "1.1"}, {"batch-max", "48"}},
             "precision"},
        Mode{"fp16_elastic", {{"precision", "fp16"}, {"weights", "fp16+8"}, {"batch-max", "48"}}},
        // A rate at which numbers leave 8 bits.
        Mode{"assign_promotes",
             {{"precision", "assign:1"},
              {"batch-mode", "fixed"},
              {"model", "mlp"},
              {"lr", "5"},
              {"warmup", "0"}},
             "precision"},
        Mode{"curvature",
             {{"curvature", "fisher"}, {"curvature-every", "3"}, {"curvature-batch", "8"}}},
        Mode{"amp_fp16", {{"method", "amp"}, {"precision", "fp16"}}},
        Mode{"micro", {{"batch-mode", "micro"}, {"clip", "0.5"}}}),
    [](const auto& mode) { return std::string(mode.param.name); });

// Without momentum a step is the rate times the gradient. The first step is whole, so that the
// second begins at the same weights with and without clipping: it shows the factor, which comes
// from the first step's norm.
TEST_F(SteeringTest, ClippingTakesTheNormOfTheStepBefore) {
  const auto run_steps = [&](const std::string& name, const char* steps, const std::string& clip) {
    run(name, {{"method", "fp32"},
               {"step", "fused"},
               {"momentum", "0"},
               {"weight-decay", "0"},
               {"lr", "0.1"},
               {"warmup", "0"},
               {"max-steps", steps},
               {"clip", clip}});
    return weights(name);
  };
  const std::vector<float> first = run_steps("first", "1", "off");
  const double norm = state("first")["gradient_norm"];
  const std::vector<float> whole = run_steps("whole", "2", "off");
  const std::vector<float> clipped = run_steps("clipped", "2", fmt::format("{}", norm / 4));
  ASSERT_EQ(first.size(), whole.size());
  EXPECT_NE(first, clipped);
  for (size_t i = 0; i < first.size(); ++i) {
    const double step = double{whole[i]} - double{first[i]};
    const double shorter = double{clipped[i]} - double{first[i]};
    // Each weight is rounded once; so is the factor.
    const double ulp = std::abs(double{whole[i]}) * 0x1p-23 + std::abs(double{first[i]}) * 0x1p-23;
    ASSERT_NEAR(shorter, step / 4, ulp + std::abs(step) * 0x1p-22) << i;
  }
  EXPECT_EQ(run_steps("loose", "2", fmt::format("{}", norm * 1.01)), whole);
}

TEST_F(SteeringTest, AnElasticBatchGrowsToItsBoundAndSamplesStayInOrder) {
  const Json summary = Json::parse(run("a", {{"batch-max", "40"}}).summary);
  EXPECT_EQ(summary["batch"], (Json{{"first", 16}, {"last", 40}, {"min", 16}, {"max", 40}}));
  EXPECT_GE(summary["decisions"], 3);
  int64_t batch = 16;
  for (const Json& event : events("a", "control")) {
    for (const Json& change : event["changes"]) {
      if (change["what"] != "batch") continue;
      EXPECT_EQ(change["from"], std::to_string(batch));
      batch += 8;
      EXPECT_EQ(change["to"], std::to_string(batch));
      EXPECT_THAT(change["reason"].get<std::string>(), HasSubstr("below 70 %"));
    }
  }
  EXPECT_EQ(batch, 40);
}

TEST_F(SteeringTest, LayersMoveAndSayWhy) {
  run("a", {{"tau-low", "0.9"}, {"tau-high", "1.1"}, {"batch-mode", "fixed"}});
  EXPECT_EQ(changed("a"), (std::set<std::string>{"precision"}));
  const Json summary = Json::parse(content_of(at("a") + "/summary.json"));
  double sum = 0;
  for (const auto& [format, share] : summary["precision"].items()) sum += share.get<double>();
  EXPECT_DOUBLE_EQ(sum, 1);
  EXPECT_GT(summary["precision"]["fp16"], 0);
  const Json start = events("a", "start").front();
  EXPECT_EQ(start["precision"]["conv1"]["y"], "bf16");
  EXPECT_EQ(start["precision"]["conv1"]["m"], "int8");
}

TEST_F(SteeringTest, ALossScaleThatIsTooLargeFallsAndTheRunGoesOn) {
  // The gradient of a confident mistake is 65536 for a batch of one, which fp16 cannot hold.
  const Json summary = Json::parse(run("a", {{"precision", "fp16"},
                                             {"batch-mode", "fixed"},
                                             {"batch", "1"},
                                             {"ghost-batch", "1"},
                                             {"epochs", "1"},
                                             {"lr", "0.5"},
                                             {"warmup", "0"}})
                                       .summary);
  EXPECT_EQ(summary["status"], "done");
  const auto skipped = summary["skipped_steps"].get<int>();
  EXPECT_GT(skipped, 0);
  int fell = 0;
  for (const Json& event : events("a", "control")) {
    EXPECT_TRUE(event["urgent"]);
    for (const Json& change : event["changes"]) fell += change["what"] == "loss scale";
  }
  EXPECT_EQ(fell, skipped);
}

TEST_F(SteeringTest, ATightCeilingStartsWithASmallerBatch) {
  const Settings wide = {{"width", "1"},
                         {"data", "synthetic:3,32,600"},
                         {"batch", "256"},
                         {"ghost-batch", "32"},
                         {"threads", "1"},
                         {"max-steps", "1"},
                         // The rungs before it are closed.
                         {"recompute", "off"},
                         {"precision", "bf16"}};
  run("free", wide);
  const Json start = events("free", "start").front();
  const auto quarter = start["engine_peak_bytes"].get<uint64_t>() / 4;
  const auto ceiling = start["process_plan_bytes"].get<uint64_t>() - quarter;
  Settings tight = wide;
  tight.emplace_back("memory", std::to_string(ceiling));
  const Json summary = Json::parse(run("tight", tight).summary);
  EXPECT_LT(summary["batch"]["last"], 256);
  EXPECT_GE(summary["batch"]["last"], 128);  // not more than needed
  EXPECT_EQ(summary["batch"]["last"].get<int>() % 32, 0);
  const auto said = events("tight", "control");
  ASSERT_FALSE(said.empty());
  EXPECT_EQ(said[0]["step"], 0);
  EXPECT_EQ(said[0]["changes"][0]["what"], "batch");
}

TEST_F(SteeringTest, RecordedSignalsReplayToTheSameChanges) {
  run("a", {{"tau-low", "0.9"}, {"tau-high", "1.1"}, {"batch-max", "48"}});
  const auto same = replay_run(at("a"), {});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_FALSE(same->recorded.empty());
  EXPECT_EQ(same->recorded, same->replayed);
  EXPECT_EQ(same->points.back().batch, 48);

  const auto other = replay_run(at("a"), {{"tau-low", "1e-9"}, {"tau-high", "1e9"}});
  ASSERT_TRUE(other) << other.error().message;
  for (const GovernorChange& change : other->replayed) EXPECT_EQ(change.what, "batch");

  for (const auto& [key, text] : Settings{{"lr", "9"},
                                          {"model", "mlp"},
                                          {"control-every", "7"},
                                          {"curvature", "off"},
                                          {"memory", "1G"}}) {
    const auto refused = replay_run(at("a"), {{key, text}});
    ASSERT_FALSE(refused) << key;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(refused.error().message, HasSubstr(key));
  }

  run("b", {{"method", "fp32"}, {"batch-mode", "fixed"}, {"max-steps", "1"}});
  const auto nothing = replay_run(at("b"), {});
  ASSERT_FALSE(nothing);
  EXPECT_THAT(nothing.error().message, HasSubstr("no decisions"));
}

// In every mode; with curvature step sizes too.
TEST_P(SteeredResumeTest, ReplaysToTheSameDecisions) {
  run("a", GetParam().settings);
  if (events("a", "control").empty()) GTEST_SKIP() << "nothing is decided";
  const auto same = replay_run(at("a"), {});
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->recorded, same->replayed);
  const std::vector<Json> measured = events("a", "curvature");
  if (measured.empty()) return;
  const GovernorPoint& end = same->points.back();
  const Json& layers = measured.back()["layers"];
  ASSERT_EQ(end.step_factors.size(), layers.size());
  const auto steeper = replay_run(at("a"), {{"alpha", "100"}});
  ASSERT_TRUE(steeper) << steeper.error().message;
  for (size_t l = 0; l < layers.size(); ++l) {
    EXPECT_LE(steeper->points.back().step_factors[l], end.step_factors[l]) << l;
  }
}

TEST_F(SteeringTest, ADamagedRecordIsSaid) {
  run("a", {{"tau-low", "0.9"}, {"tau-high", "1.1"}});
  std::vector<std::string> lines;
  {
    std::ifstream file(at("a") + "/metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
  }
  for (std::string& line : lines) {
    Json event = Json::parse(line);
    if (event["event"] != "control") continue;
    event["signals"]["layers"].erase(0);
    line = event.dump();
    break;
  }
  std::ofstream(at("a") + "/metrics.jsonl") << fmt::format("{}\n", fmt::join(lines, "\n"));
  const auto damaged = replay_run(at("a"), {});
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().message, HasSubstr("damaged"));
}

TEST_F(SteeringTest, CurvatureIsMeasuredAndTamesTheSteps) {
  run("a", {{"curvature", "fisher"}, {"curvature-every", "4"}, {"curvature-batch", "8"}});
  const auto measured = events("a", "curvature");
  ASSERT_GE(measured.size(), 2u);
  EXPECT_EQ(measured[0]["step"], 0);
  EXPECT_EQ(measured[1]["step"], 4);
  for (const Json& event : measured) {
    EXPECT_EQ(event["curvature_samples"], 8);
    for (const Json& layer : event["layers"]) {
      EXPECT_EQ(layer["lambda"].size(), 5u);
      EXPECT_GT(layer["lambda"][0], 0);
      EXPECT_LT(layer["step_size"].get<double>() * layer["lambda"][0].get<double>(), 2);
    }
  }
  EXPECT_GT(Json::parse(content_of(at("a") + "/summary.json"))["control_seconds"], 0);
}

TEST_F(SteeringTest, CurvatureSavesARateThatDiverges) {
  const auto status_with = [this](const char* curvature) {
    const Json summary = Json::parse(run(curvature, {{"method", "fp32"},
                                                     {"model", "mlp"},
                                                     {"width", "1"},
                                                     {"data", "synthetic:5,8,600"},
                                                     {"batch", "32"},
                                                     {"epochs", "6"},
                                                     {"warmup", "0"},
                                                     {"momentum", "0"},
                                                     {"lr", "3"},
                                                     {"control-every", "5"},
                                                     {"curvature", curvature},
                                                     {"curvature-every", "5"}})
                                         .summary);
    return summary["status"].get<std::string>();
  };
  EXPECT_EQ(status_with("off"), "diverged");
  EXPECT_EQ(status_with("fisher"), "done");
}

TEST_F(SteeringTest, AFixedMethodDecidesNothing) {
  const Json summary = Json::parse(run("a", {{"method", "fp32"}, {"batch-mode", "fixed"}}).summary);
  EXPECT_EQ(summary["decisions"], 0);
  EXPECT_TRUE(events("a", "control").empty());
}

}  // namespace
}  // namespace tri::train
