#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "experiment/child.h"
#include "experiment/grid.h"
#include "experiment/planned_run.h"
#include "experiment/results.h"
#include "tri/config.h"

namespace tri::experiment {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

const DataSpecs kData = {"cifar10:/none", "cifar100:/none"};

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "tri_experiment_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_;
};

TEST(Grids, EveryRowIsAConfigurationWithANameOfItsOwn) {
  std::vector<Grid> grids = {rate_grid(kData), threshold_grid(kData, {{"lr", "0.1"}})};
  for (const std::string_view name : published_names()) {
    grids.push_back(published_grid(name, kData).value());
  }
  for (const Grid& grid : grids) {
    std::set<std::string> names;
    for (const PlannedRun& run : planned_runs(grid, {})) {
      EXPECT_TRUE(names.insert(run.name).second) << grid.name << " " << run.name;
      ConfigBuilder builder;
      for (const auto& [key, text] : run.settings) {
        const auto set = builder.set(key, text);
        EXPECT_TRUE(set) << set.error().message;
      }
      const auto resolved = builder.resolve();
      EXPECT_TRUE(resolved) << run.name << ": " << resolved.error().message;
    }
  }
  EXPECT_FALSE(published_grid("table3", kData));
}

TEST(Grids, Table1) {
  const Grid grid = *published_grid("table1", kData);
  EXPECT_EQ(grid.rows.size(), 2 * 2 * 3 + 1);
  EXPECT_EQ(planned_runs(grid, {}).size(), 3 * 12 + 1);  // one row of steps only, once
  EXPECT_EQ(planned_runs(grid, {.only = "cifar-10-resnet-18"}).size(), 9);
  for (const Row& row : grid.rows) {
    if (row.label == "Tri-Accel" && !row.step_only) {
      EXPECT_EQ(row.engine_share, 0.45);
    } else {
      EXPECT_EQ(row.engine_share, 0);
    }
  }
}

TEST(Slug, IsAFileName) {
  EXPECT_EQ(slug("CIFAR-10, ResNet-18 + dynamic batch"), "cifar-10-resnet-18-dynamic-batch");
  EXPECT_EQ(slug("R = 0.25"), "r-0.25");
  EXPECT_EQ(slug("../../x"), "..-..-x");
}

TEST(CommandLine, QuotesWhatAShellWouldSplit) {
  EXPECT_EQ(command_line({"train", "--out", "a b", ""}), "triaccel train --out 'a b' ''");
}

TEST(Spread, MeanAndStandardDeviation) {
  const Spread three = spread_of({1, 2, 6});
  EXPECT_DOUBLE_EQ(three.mean, 3);
  EXPECT_DOUBLE_EQ(three.deviation, std::sqrt(7.0));  // (4 + 1 + 9) / 2
  EXPECT_EQ(spread_of({5}).deviation, 0);
  EXPECT_EQ(spread_of({}).count, 0);
}

Json result(const Grid& grid, const Row& row, int64_t seed, double accuracy, double peak) {
  return {{"block", row.block},
          {"row", row.label},
          {"seed", seed},
          {"training", training_of(grid, row)},
          {"status", "done"},
          {"test_accuracy", accuracy},
          {"engine_peak_bytes", peak},
          {"epoch_seconds", 2.0}};
}

TEST(Training, IsTheSameWhereverPublishedDataLie) {
  Grid grid = *published_grid("table1", kData);
  Row row = grid.rows[0];
  const Json before = training_of(grid, row);
  row.settings.emplace_back("data", "cifar10:/elsewhere");
  row.settings.emplace_back("threads", "7");
  EXPECT_EQ(training_of(grid, row), before);
  row.settings.emplace_back("data", "folder:/a");
  const Json folder = training_of(grid, row);
  EXPECT_NE(folder, before);
  row.settings.emplace_back("data", "folder:/b");
  EXPECT_NE(training_of(grid, row), folder);
  row.settings.emplace_back("memory", "1GiB");
  EXPECT_NE(training_of(grid, row), folder);
}

TEST_F(Folder, ATableShowsWhatAnotherProcessAdded) {
  const Grid grid = *published_grid("table2", kData);
  Results ours = Results::read(folder_, grid);
  Results theirs = Results::read(folder_, grid);
  ASSERT_TRUE(theirs.add(result(grid, grid.rows[0], 0, 0.25, 100e6)));
  ASSERT_TRUE(ours.add(result(grid, grid.rows[1], 0, 0.75, 100e6)));
  ASSERT_TRUE(ours.write_markdown(grid));
  std::ifstream file(ours.markdown_path());
  const std::string table(std::istreambuf_iterator<char>(file), {});
  EXPECT_THAT(table, HasSubstr("| 25.00 |"));
  EXPECT_THAT(table, HasSubstr("| 75.00 |"));
}

TEST_F(Folder, ATableShowsWhatWasJudgedOnAHeldOutPart) {
  const Grid grid = rate_grid(kData);
  Results results = Results::read(folder_, grid);
  Json judged = result(grid, grid.rows[0], 0, 0.25, 100e6);
  ASSERT_TRUE(results.add(judged));
  EXPECT_THAT(markdown(grid, results), Not(HasSubstr("held out")));
  judged["val_accuracy"] = 0.375;
  ASSERT_TRUE(results.add(judged));
  const std::string table = markdown(grid, results);
  EXPECT_THAT(table, HasSubstr("`triaccel experiment tune`"));
  EXPECT_THAT(table, HasSubstr("| row | seeds | held out % | accuracy % |"));
  EXPECT_THAT(table, HasSubstr("| 1 | 37.50 | 25.00 |"));
}

TEST_F(Folder, ATableCountsLostSteps) {
  const Grid grid = *published_grid("table2", kData);
  Results results = Results::read(folder_, grid);
  Json lossy = result(grid, grid.rows[0], 0, 0.25, 100e6);
  lossy["skipped_steps"] = 1;
  ASSERT_TRUE(results.add(lossy));
  EXPECT_THAT(markdown(grid, results), HasSubstr("1 step lost"));
  lossy["skipped_steps"] = 21;
  ASSERT_TRUE(results.add(lossy));
  EXPECT_THAT(markdown(grid, results), HasSubstr("21 steps lost"));
}

TEST_F(Folder, ResultsSurviveAndTheLastOfARunCounts) {
  const Grid grid = *published_grid("table2", kData);
  Results results = Results::read(folder_, grid);
  ASSERT_TRUE(results.add(result(grid, grid.rows[0], 0, 0.1, 100e6)));
  ASSERT_TRUE(results.add(result(grid, grid.rows[0], 0, 0.5, 200e6)));
  ASSERT_TRUE(results.add(result(grid, grid.rows[0], 0, 0.5, 200e6)));  // not written again
  ASSERT_TRUE(results.add(result(grid, grid.rows[0], 1, 0.7, 200e6)));
  ASSERT_TRUE(results.add(result(grid, grid.rows[3], 0, 0.6, 90e6)));
  Grid longer = grid;
  longer.epochs = 99;
  ASSERT_TRUE(results.add(result(longer, grid.rows[0], 2, 0.9, 1)));
  Row slower = grid.rows[0];
  slower.settings.emplace_back("lr", "0.001");
  ASSERT_TRUE(results.add(result(grid, slower, 3, 0.9, 1)));
  std::ofstream(results.jsonl_path(), std::ios::app) << "{\"torn";

  const Results again = Results::read(folder_, grid);
  EXPECT_THAT(again.values(grid.rows[0], "test_accuracy"), testing::ElementsAre(0.5, 0.7));
  std::ifstream file(again.jsonl_path());
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 6);
  const std::string table = markdown(grid, again);
  EXPECT_THAT(table, HasSubstr("| standard | 2 | 60.00 +- 14.14 | 2.0 +- 0.0 | 200.0 +- 0.0 |"));
  EXPECT_THAT(table, HasSubstr("45.0 %"));  // 90 of 200 MB
  EXPECT_THAT(table, HasSubstr("0.307"));   // the paper's
}

TEST_F(Folder, GridFilesCombine) {
  std::ofstream(folder_ + "/My Rates.toml") << "epochs = 2\nseeds = [1]\n[set]\nmodel = \"mlp\"\n"
                                               "[vary]\nlr = [0.1, 0.2]\nbatch = [8, 16, 32]\n"
                                               "[[run]]\nname = \"a\"\n[[run]]\nname = \"b\"\n";
  const auto grid = grid_from_file(folder_ + "/My Rates.toml");
  ASSERT_TRUE(grid) << grid.error().message;
  EXPECT_EQ(grid->name, "my-rates");
  EXPECT_EQ(grid->rows.size(), 2 * 2 * 3);
  std::set<std::string> labels;
  for (const Row& row : grid->rows) labels.insert(row.label);
  EXPECT_EQ(labels.size(), 12);
  EXPECT_TRUE(labels.contains("b, batch 16, lr 0.2") || labels.contains("b, lr 0.2, batch 16"));
}

}  // namespace
}  // namespace tri::experiment
