#include "train/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/scratch_directory.h"

namespace tri::train {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

Summary example_summary() {
  return {.model = "resnet18",
          .data = "cifar10",
          .method = "triaccel",
          .seed = 3,
          .status = Status::kDone,
          .epochs = 15,
          .steps = 7815,
          .samples = 750'000,
          .params = 11'181'642,
          .test_accuracy = 0.801,
          .best_test_accuracy = 0.805,
          .train_loss = 0.1,
          .epoch_seconds = 20.0,
          .images_per_second = 2500.5,
          .engine_peak_bytes = 350'000'000,
          .process_peak_bytes = (uint64_t{1} << 53) + 1,
          .ceiling_bytes = 400'000'000,
          .batch = {96, 128, 64, 256},
          .precision = {0.1, 0.7, 0.2, 0},
          .control_seconds = 1.25,
          .decisions = 12};
}

TEST(Summary, HasTheKeysOfTheContractInOrder) {
  const Json json = Json::parse(to_json(example_summary()));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::ElementsAre(
                        "model", "data", "method", "seed", "status", "epochs", "steps", "samples",
                        "params", "test_accuracy", "best_test_accuracy", "train_loss",
                        "epoch_seconds", "images_per_second", "engine_peak_bytes",
                        "process_peak_bytes", "ceiling_bytes", "score", "batch", "precision",
                        "control_seconds", "decisions", "skipped_steps", "low_ratio"));
  EXPECT_EQ(json["status"], "done");
  EXPECT_EQ(json["batch"].dump(), R"({"first":96,"last":128,"min":64,"max":256})");
  EXPECT_EQ(json["precision"].dump(), R"({"fp32":0.1,"bf16":0.7,"fp16":0.2,"fp8":0.0})");
}

TEST(Summary, ScoresAsThePaper) {
  // 80.1 % / (20 s x 0.35 GB)
  EXPECT_NEAR(score(example_summary()).value(), 80.1 / 7, 1e-12);
  EXPECT_NEAR(Json::parse(to_json(example_summary()))["score"].get<double>(), 80.1 / 7, 1e-12);
  EXPECT_EQ(score(Summary{}), std::nullopt);
  Summary unmeasured = example_summary();
  unmeasured.engine_peak_bytes = 0;
  EXPECT_EQ(score(unmeasured), std::nullopt);
}

TEST(Summary, WritesWhatIsNotKnownAsNull) {
  Summary summary;
  summary.train_loss = std::numeric_limits<double>::infinity();
  const Json json = Json::parse(to_json(summary));
  for (const char* const key : {"test_accuracy", "train_loss", "epoch_seconds", "score"}) {
    EXPECT_TRUE(json.at(key).is_null()) << key;
  }
  EXPECT_EQ(parse_summary(to_json(summary), "s").value().train_loss, std::nullopt);
}

TEST(Summary, ReadsBackWhatItWrote) {
  const checkpoint::ScratchDirectory scratch;
  const std::string path = scratch / "summary.json";
  for (const Status status :
       {Status::kRunning, Status::kDone, Status::kInterrupted, Status::kDiverged}) {
    Summary summary = example_summary();
    summary.status = status;
    ASSERT_TRUE(write_summary(path, summary));
    EXPECT_EQ(read_summary(path).value(), summary);
  }
  EXPECT_EQ(scratch.entries(), 1U);  // no temporary stays
}

TEST(Summary, RefusesWhatIsNoSummary) {
  std::string other_status = to_json(example_summary());
  other_status.replace(other_status.find("\"done\""), 6, "\"gone\"");
  for (const std::string& text : {std::string("{"), std::string("[]"), std::string("{}"),
                                  std::string(R"({"model":3})"), other_status}) {
    const auto read = parse_summary(text, "runs/a/summary.json");
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr("'runs/a/summary.json' is not the summary"));
  }
}

TEST(Summary, KeepsTheOldOneWhenTheNewCannotBeWritten) {
  const checkpoint::ScratchDirectory scratch;
  const std::string path = scratch / "summary.json";
  ASSERT_EQ(::mkdir(path.c_str(), 0777), 0);  // a directory cannot be replaced by a file
  const Result<void> written = write_summary(path, example_summary());
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().message, HasSubstr(path));
  EXPECT_EQ(scratch.entries(), 1U);
  EXPECT_FALSE(write_summary(scratch / "none" + "/summary.json", example_summary()));
}

}  // namespace
}  // namespace tri::train
