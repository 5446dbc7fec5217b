#include "tri/session.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/safetensors.h"
#include "checkpoint/scratch_directory.h"

namespace tri::train {
namespace {

namespace fs = std::filesystem;
using checkpoint::SafetensorsReader;
using testing::AllOf;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Small enough for milliseconds; 90 samples and a batch of 32, so that batches straddle epochs.
Settings tiny() {
  return {{"method", "fp32"}, {"model", "convnet"}, {"width", "0.1"}, {"data", "synthetic:3,9,90"},
          {"batch", "32"},    {"epochs", "3"},      {"lr", "0.05"},   {"threads", "2"},
          {"seed", "5"}};
}

Result<TrainOutcome> train_with(const Settings& settings) {
  ConfigBuilder builder;
  for (const auto& [key, text] : settings) TRI_TRY(builder.set(key, text));
  TRI_ASSIGN(const ResolvedConfig resolved, builder.resolve());
  return run_training(resolved, {});
}

class SessionTest : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_ / name; }

  TrainOutcome run(const std::string& name, const Settings& more = {}) {
    Settings settings = tiny();
    settings.emplace_back("out", at(name));
    settings.insert(settings.end(), more.begin(), more.end());
    const auto outcome = train_with(settings);
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome.value_or({});
  }

  TrainOutcome go_on(const std::string& name, const Settings& changes = {}) {
    const auto outcome = resume_training(at(name), changes, {});
    EXPECT_TRUE(outcome) << outcome.error().message;
    return outcome.value_or({});
  }

  Error refused(const Settings& more) {
    Settings settings = tiny();
    settings.emplace_back("out", at("refused"));
    settings.insert(settings.end(), more.begin(), more.end());
    const auto outcome = train_with(settings);
    EXPECT_FALSE(outcome);
    return outcome ? Error{} : outcome.error();
  }

  std::vector<Json> events(const std::string& name) const {
    std::ifstream file(at(name) + "/metrics.jsonl");
    std::vector<Json> all;
    for (std::string line; std::getline(file, line);) all.push_back(Json::parse(line));
    return all;
  }

  void expect_same_weights(const std::string& a, const std::string& b) const {
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      EXPECT_EQ(content(at(a) + "/checkpoints/last/" + file),
                content(at(b) + "/checkpoints/last/" + file))
          << file;
    }
  }

  checkpoint::ScratchDirectory folder_;
};

TEST_F(SessionTest, LearnsAndSaysSo) {
  const TrainOutcome outcome = run("a", {{"epochs", "18"}});
  EXPECT_EQ(outcome.directory, at("a"));
  EXPECT_FALSE(outcome.stopped);
  const Json summary = Json::parse(outcome.summary);
  EXPECT_EQ(summary, Json::parse(content(at("a") + "/summary.json")));
  EXPECT_EQ(summary["status"], "done");
  EXPECT_EQ(summary["epochs"], 18);
  EXPECT_EQ(summary["steps"], 51);  // ceil(18 * 90 / 32)
  EXPECT_EQ(summary["samples"], 51 * 32);
  EXPECT_GT(summary["test_accuracy"], 0.8);
  EXPECT_GT(summary["engine_peak_bytes"], 0);
  EXPECT_EQ(summary["batch"]["max"], 32);
}

TEST_F(SessionTest, EvaluatesAtTheFirstStepAfterAnEpoch) {
  run("a", {{"control-every", "2"}});
  std::vector<std::string> kinds;
  std::vector<uint64_t> epochs_at;
  for (const Json& event : events("a")) {
    kinds.push_back(event["event"]);
    if (event["event"] == "epoch") epochs_at.push_back(event["samples"]);
    EXPECT_EQ(event["samples"].get<uint64_t>(), 32 * event["step"].get<uint64_t>());
  }
  EXPECT_EQ(kinds.front(), "start");
  EXPECT_EQ(kinds.back(), "end");
  EXPECT_EQ(epochs_at, (std::vector<uint64_t>{96, 192, 288}));
  EXPECT_EQ(std::ranges::count(kinds, "step"), 4);  // of 9 steps every second
}

// Every way to store weights and state, and both times to step.
struct Form {
  const char *weights, *state, *optimizer, *step;
};
class ResumeTest : public SessionTest, public testing::WithParamInterface<Form> {};

TEST_P(ResumeTest, IsExactInTheMiddleOfAnEpoch) {
  const Form form = GetParam();
  const Settings more = {{"weights", form.weights},
                         {"state", form.state},
                         {"optimizer", form.optimizer},
                         {"step", form.step},
                         {"precision", std::string(form.weights) == "fp32" ? "fp32" : "bf16"},
                         {"lr", "0.01"}};
  run("whole", more);
  Settings cut = more;
  cut.emplace_back("max-steps", "4");  // 128 of 270 samples
  run("parts", cut);
  go_on("parts", {{"max-steps", "off"}, {"threads", "1"}});
  expect_same_weights("whole", "parts");
}

INSTANTIATE_TEST_SUITE_P(Forms, ResumeTest,
                         testing::Values(Form{"fp32", "fp32", "sgd", "after"},
                                         Form{"bf16+8", "int8", "sgd", "fused"},
                                         Form{"bf16+16", "bf16", "adam", "fused"},
                                         Form{"fp16+8", "int8", "adamw", "after"},
                                         Form{"bf16sr", "bf16", "lars", "fused"},
                                         Form{"fp32+bf16", "fp32", "lamb", "after"}),
                         [](const auto& form) {
                           std::string name = std::string(form.param.weights) + "_" +
                                              form.param.state + "_" + form.param.optimizer + "_" +
                                              form.param.step;
                           std::ranges::replace(name, '+', 'x');
                           return name;
                         });

TEST_F(SessionTest, ResumedEventsAreThoseOfOneRun) {
  run("whole", {{"control-every", "2"}});
  run("parts", {{"control-every", "2"}, {"max-steps", "5"}});
  go_on("parts", {{"max-steps", "off"}});
  // What was measured with a clock may differ; what was computed may not.
  const auto computed = [&](const std::string& name) {
    std::vector<std::string> lines;
    for (const Json& event : events(name)) {
      if (event["event"] == "step")
        lines.push_back(fmt::format("{} {}", event["step"].dump(), event["loss"].dump()));
      if (event["event"] == "epoch") {
        lines.push_back(fmt::format("{} {} {} {}", event["step"].dump(), event["train_loss"].dump(),
                                    event["train_accuracy"].dump(), event["test_loss"].dump()));
      }
    }
    return lines;
  };
  EXPECT_EQ(computed("whole"), computed("parts"));
}

TEST_F(SessionTest, ResumingAFinishedRunChangesNothing) {
  const TrainOutcome first = run("a");
  const std::string before = content(at("a") + "/checkpoints/last/model.safetensors");
  const TrainOutcome again = go_on("a");
  EXPECT_EQ(content(at("a") + "/checkpoints/last/model.safetensors"), before);
  EXPECT_EQ(Json::parse(again.summary)["steps"], Json::parse(first.summary)["steps"]);
}

TEST_F(SessionTest, ResumeRefusesWhatWouldChangeTheRun) {
  run("a", {{"max-steps", "2"}});
  const auto outcome = resume_training(at("a"), {{"lr", "0.5"}}, {});
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(outcome.error().message, AllOf(HasSubstr("--lr 0.5"), HasSubstr(at("a"))));
  std::ofstream(at("a") + "/config.toml", std::ios::app) << "\n";
  EXPECT_TRUE(resume_training(at("a"), {{"max-steps", "3"}}, {}));
  std::string text = content(at("a") + "/config.toml");
  text.replace(text.find("seed = 5"), 8, "seed = 6");
  std::ofstream(at("a") + "/config.toml") << text;
  const auto edited = resume_training(at("a"), {}, {});
  ASSERT_FALSE(edited);
  EXPECT_THAT(edited.error().message, HasSubstr("restore"));
}

TEST_F(SessionTest, ADamagedCheckpointIsNamed) {
  run("a", {{"max-steps", "2"}});
  const std::string file = at("a") + "/checkpoints/last/optimizer.safetensors";
  std::string bytes = content(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  const auto flipped = resume_training(at("a"), {}, {});
  ASSERT_FALSE(flipped);
  EXPECT_THAT(flipped.error().message, AllOf(HasSubstr(file), HasSubstr("damaged")));
  fs::resize_file(file, bytes.size() - 1);
  const auto cut = resume_training(at("a"), {}, {});
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message, AllOf(HasSubstr(file), HasSubstr("damaged")));
}

TEST_F(SessionTest, StopsWhenPatienceEnds) {
  // A rate of almost nothing: the first accuracy stays the best.
  const TrainOutcome outcome = run("a", {{"lr", "1e-12"}, {"epochs", "9"}, {"patience", "2"}});
  const Json summary = Json::parse(outcome.summary);
  EXPECT_EQ(summary["status"], "done");
  EXPECT_EQ(summary["epochs"], 3);
}

TEST_F(SessionTest, DivergenceIsSaid) {
  const TrainOutcome outcome = run("a", {{"lr", "1e30"}, {"epochs", "50"}, {"warmup", "0"}});
  ASSERT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.stopped->code, ErrorCode::kDiverged);
  EXPECT_THAT(outcome.stopped->message, AllOf(HasSubstr("not finite"), HasSubstr("--lr")));
  EXPECT_EQ(Json::parse(outcome.summary)["status"], "diverged");
}

TEST_F(SessionTest, AHeldOutPartJudges) {
  run("a", {{"val-split", "0.2"}, {"epochs", "2"}});
  const auto all = events("a");
  const auto epoch = std::ranges::find_if(all, [](const Json& e) { return e["event"] == "epoch"; });
  ASSERT_NE(epoch, all.end());
  EXPECT_TRUE(epoch->contains("val_accuracy"));
  EXPECT_EQ((*epoch)["samples"], 96);  // 72 remain to learn from
}

// A run that is cut twice has the kernels, and the bits, of one that is cut once.
TEST_F(SessionTest, KernelsAreMeasuredOnceAndKept) {
  run("a", {{"tune", "on"}, {"width", "0.5"}, {"max-steps", "3"}});
  const std::string measured = content(at("a") + "/kernels.json");
  ASSERT_FALSE(Json::parse(measured).empty());
  for (const Json& one : Json::parse(measured)) {
    EXPECT_NE(one["kernel"], one["other"]);
    EXPECT_GT(one["ms"], 0);
  }
  const auto kernels = [this](const char* run) {
    return Json::parse(content(at(run) + "/checkpoints/last/state.json"))["card"]["kernels"];
  };
  const Json first = kernels("a");
  ASSERT_FALSE(first.empty());
  fs::copy(at("a"), at("b"), fs::copy_options::recursive);
  go_on("a", {{"max-steps", "7"}});
  go_on("b", {{"max-steps", "5"}});
  go_on("b", {{"max-steps", "7"}});
  for (const char* run : {"a", "b"}) {
    EXPECT_EQ(kernels(run), first);
    EXPECT_EQ(content(at(run) + "/kernels.json"), measured);
  }
  expect_same_weights("a", "b");
  EXPECT_EQ(events("a").front()["kernels"].size(), first.size());
}

TEST_F(SessionTest, RefusesWhatDoesNotFit) {
  const Error error = refused({{"memory", "8MiB"}, {"model", "resnet18"}});
  EXPECT_EQ(error.code, ErrorCode::kDoesNotFit);
  EXPECT_THAT(error.message, AllOf(HasSubstr("8.0 MiB"), HasSubstr("the engine")));
  EXPECT_FALSE(fs::exists(at("refused")));
}

TEST_F(SessionTest, RefusesADirectoryWithACheckpoint) {
  run("refused", {{"max-steps", "1"}});
  const Error error = refused({});
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  EXPECT_THAT(error.message, HasSubstr("--resume"));
}

TEST_F(SessionTest, ExportsBf16AndResumesExactly) {
  run("whole", {{"export-dtype", "bf16"}});
  run("parts", {{"export-dtype", "bf16"}, {"max-steps", "4"}});
  go_on("parts", {{"max-steps", "off"}});
  expect_same_weights("whole", "parts");
  const auto reader =
      SafetensorsReader::open(at("whole") + "/checkpoints/last/model.safetensors").value();
  EXPECT_EQ(reader.find("conv1.weight")->dtype, checkpoint::DType::kBf16);
  EXPECT_EQ(reader.find("bn1.running_var")->dtype, checkpoint::DType::kF32);
  EXPECT_EQ(reader.find("bn1.num_batches_tracked")->dtype, checkpoint::DType::kI64);
}

TEST_F(SessionTest, InitTakesWeightsAndKeepsAnotherHead) {
  run("a");
  const std::string file = at("a") + "/checkpoints/last/model.safetensors";
  run("same", {{"init", file}, {"lr", "1e-12"}, {"max-steps", "1"}});
  const Json same = Json::parse(content(at("same") + "/summary.json"));
  EXPECT_EQ(same["test_accuracy"],
            Json::parse(content(at("a") + "/summary.json"))["test_accuracy"]);

  run("other", {{"init", file}, {"data", "synthetic:5,9,90"}, {"max-steps", "1"}});
  std::string said;
  for (const Json& event : events("other")) {
    if (event["event"] == "warning") said = event["message"];
  }
  EXPECT_THAT(said, AllOf(HasSubstr("fc.weight"), HasSubstr("fc.bias"), HasSubstr("classes")));

  const Error error = refused({{"init", file}, {"width", "0.2"}});
  EXPECT_EQ(error.code, ErrorCode::kInvalid);
  EXPECT_THAT(error.message, AllOf(HasSubstr(file), HasSubstr("there"), HasSubstr("here")));
}

TEST_F(SessionTest, WarnsOfTooFewSamplesForBatchNorm) {
  const auto said = [this](const std::string& name, const std::string& batch) {
    run(name, {{"model", "resnet18"},
               {"width", "0.1"},
               {"batch", batch},
               {"max-steps", "1"},
               {"batch-mode", "elastic"}});
    std::string text;
    for (const Json& event : events(name)) {
      if (event["event"] == "warning") text = event["message"];
    }
    return text;
  };
  EXPECT_THAT(said("prime", "37"),
              AllOf(HasSubstr("sees 1 of --batch 37"), HasSubstr("--ghost-batch 37")));
  EXPECT_EQ(said("even", "36"), "");
}

TEST_F(SessionTest, EvalRepeatsTheAccuracyOfTheRun) {
  for (const char* precision : {"fp32", "bf16", "adaptive", "fp16", "fp8", "assign:0.5"}) {
    const std::string name = std::string("a_") + precision;
    const TrainOutcome outcome =
        run(name, {{"precision", precision}, {"weights", "bf16+8"}, {"state", "int8"}});
    for (const char* place : {"", "/checkpoints/last"}) {
      ModelSource source;
      source.path = at(name) + place;
      source.batch = 7;
      const auto result = evaluate_model(source);
      ASSERT_TRUE(result) << result.error().message;
      EXPECT_EQ(result->count, 18u);
      EXPECT_EQ(Json(result->accuracy), Json::parse(outcome.summary)["test_accuracy"]);
      EXPECT_EQ(std::accumulate(result->confusion.begin(), result->confusion.end(), uint64_t{0}),
                18u);
    }
  }
}

TEST_F(SessionTest, EvalReadsAPlainFile) {
  const TrainOutcome outcome = run("a");
  ModelSource source;
  source.path = at("plain.safetensors");
  fs::copy_file(at("a") + "/checkpoints/last/model.safetensors", source.path);
  const auto nameless = evaluate_model(source);
  ASSERT_FALSE(nameless);
  EXPECT_THAT(nameless.error().message, HasSubstr("--model"));
  source.model = "convnet";
  source.width = 0.1;
  source.data = "synthetic:3,9,90";
  const auto result = evaluate_model(source);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(Json(result->accuracy), Json::parse(outcome.summary)["test_accuracy"]);
  source.data = "synthetic:4,9,90";
  EXPECT_FALSE(evaluate_model(source));
}

}  // namespace
}  // namespace tri::train
