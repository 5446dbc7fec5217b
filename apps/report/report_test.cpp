#include "report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "report/axis.h"
#include "report/layer_grid.h"
#include "report/run_log.h"
#include "report/thinned.h"

namespace tri::report {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Run : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "tri_report_XXXXXX";
    directory_ = ::mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(directory_); }

  void put(const std::string& name, const std::string& text) const {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << text;
  }
  RunLog read() const { return read_run(directory_).value(); }
  std::string page() const {
    const auto written = write_report({directory_}, directory_ + "/report.html");
    EXPECT_TRUE(written) << written.error().message;
    std::ifstream file(directory_ + "/report.html", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string directory_;
};

TEST(Thinned, KeepsTheEndsAndTheExtremes) {
  Thinned curve(Keep::kExtremes);
  constexpr int kCount = 100'000, kSpike = 31'415;
  for (int i = 0; i < kCount; ++i) curve.add(i, i == kSpike ? 7 : 1);
  const auto points = curve.points();
  EXPECT_LE(points.size(), Thinned::kMost);
  EXPECT_GE(points.size(), Thinned::kMost / 4);
  EXPECT_EQ(points.front().x, 0);
  EXPECT_EQ(points.back().x, kCount - 1);
  EXPECT_EQ(std::ranges::count(points, 7, &Point::y), 1);
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, &Point::x));
}

TEST(Thinned, KeepsTheMean) {
  Thinned curve(Keep::kMean);
  constexpr int kCount = 40'000;
  for (int i = 0; i < kCount; ++i) curve.add(i, i % 2);  // pairs average to a half, exactly
  const auto points = curve.points();
  EXPECT_LE(points.size(), Thinned::kMost);
  for (const Point& point : points) EXPECT_EQ(point.y, 0.5);
}

TEST(Thinned, IgnoresWhatIsNotFinite) {
  Thinned curve;
  curve.add(0, std::nan(""));
  curve.add(INFINITY, 1);
  EXPECT_TRUE(curve.empty());
}

TEST(LayerGrid, ColumnsWidenAndLaterChangesWin) {
  LayerGrid grid;
  grid.put("a", 0, 1);
  grid.put("a", 1, 2);
  grid.put("b", 1000, 3);
  EXPECT_EQ(grid.rows(), 2);
  EXPECT_EQ(grid.steps_per_column(), 8);  // 128 columns of 8 steps are the first to hold step 1000
  EXPECT_EQ(grid.at(0, 0), 2);
  EXPECT_TRUE(std::isnan(grid.at(0, 125)));
  EXPECT_EQ(grid.at(1, 1000 / 8), 3);
}

TEST(Axis, TicksAreRoundAndInside) {
  for (const double low : {0.0, 0.013, 5.0, 1e6}) {
    for (const double width : {0.0, 1e-6, 0.07, 3.0, 1e9}) {
      for (const Unit unit :
           {Unit::kNumber, Unit::kWhole, Unit::kShare, Unit::kSeconds, Unit::kBytes}) {
        const Axis axis = make_axis(low, low + width, unit, Scale::kTight, 5);
        EXPECT_LT(axis.low, axis.high);
        EXPECT_LE(axis.ticks.size(), 7);
        const Axis rounded = make_axis(low, low + width, unit, Scale::kLinear, 5);
        EXPECT_NEAR(rounded.place(rounded.ticks.front().at * rounded.divisor), 0, 1e-6);
        EXPECT_NEAR(rounded.place(rounded.ticks.back().at * rounded.divisor), 1, 1e-6);
        for (const Tick& tick : axis.ticks) {
          const double place = axis.place(tick.at * axis.divisor);
          EXPECT_GE(place, -1e-6);
          EXPECT_LE(place, 1 + 1e-6);
        }
      }
    }
  }
}

TEST(Axis, UnitsFollowTheSize) {
  EXPECT_EQ(make_axis(0, 200 << 20, Unit::kBytes, Scale::kFromZero, 5).unit, "MiB");
  EXPECT_EQ(make_axis(0, 40, Unit::kSeconds, Scale::kFromZero, 5).unit, "s");
  EXPECT_EQ(make_axis(0, 4000, Unit::kSeconds, Scale::kFromZero, 5).unit, "min");
  const Axis share = make_axis(0.5, 1, Unit::kShare, Scale::kLinear, 5);
  EXPECT_EQ(share.ticks.back().label, "100");
}

TEST(Formats, OfManySpellings) {
  EXPECT_EQ(kFormatNames[format_index("fp32")], "fp32");
  EXPECT_EQ(kFormatNames[format_index("bf16")], "bf16");
  EXPECT_EQ(kFormatNames[format_index("fp16")], "fp16");
  EXPECT_EQ(kFormatNames[format_index("fp16-169")], "fp16 1-6-9");
  EXPECT_EQ(kFormatNames[format_index("fp8")], "fp8 1-4-3");
  EXPECT_EQ(kFormatNames[format_index("fp8-152")], "fp8 1-5-2");
  EXPECT_EQ(kFormatNames[format_index("int3")], "other");
}

// Training is timed without what was done beside it; a narrow output stays narrow when its layer
// changes; of signed eigenvalues the largest is shown.
TEST_F(Run, EventsBetweenStepsAreToldApart) {
  put("metrics.jsonl",
      R"({"event":"start","step":0,"samples":0,"seconds":0,"epoch_samples":100,)"
      R"("precision":{"conv1":"bf16"}})"
      "\n"
      R"({"event":"step","step":5,"samples":50,"seconds":1})"
      "\n"
      R"({"event":"checkpoint","step":5,"samples":50,"seconds":4,"save_seconds":3})"
      "\n"
      R"({"event":"curvature","step":5,"layers":[{"name":"conv1","lambda":[-50,20]}],)"
      R"("samples":50,"seconds":5,"curvature_seconds":1})"
      "\n"
      R"({"event":"control","step":6,"samples":60,"seconds":5.4,"changes":[)"
      R"({"what":"precision conv1 Y","from":"bf16","to":"fp8-143","reason":"memory"}]})"
      "\n"
      R"({"event":"control","step":8,"samples":80,"seconds":6,"changes":[)"
      R"({"what":"precision conv1","from":"bf16","to":"fp16","reason":"variance"}]})"
      "\n"
      R"({"event":"step","step":10,"samples":100,"seconds":7})"
      "\n"
      R"({"event":"control","step":12,"samples":120,"seconds":8,"changes":[)"
      R"({"what":"precision conv1","from":"fp16","to":"fp32","reason":"overflow"}]})"
      "\n");
  const RunLog run = read();
  ASSERT_EQ(run.throughput.points().size(), 1);
  EXPECT_EQ(run.throughput.points()[0].y, 25);  // 50 samples in 6 - 3 - 1 seconds
  EXPECT_EQ(run.curvature.at(0, 5), 20);
  const auto narrow = static_cast<float>(format_index("fp8-143"));
  EXPECT_EQ(run.precision.at(0, 6), narrow);
  EXPECT_NE(run.precision.at(0, 8), static_cast<float>(format_index("fp16")));  // no change
  EXPECT_EQ(run.precision.at(0, 12), static_cast<float>(format_index("fp32")));
}

TEST_F(Run, EventsBecomeCurves) {
  put("metrics.jsonl",
      R"({"event":"start","step":0,"samples":0,"seconds":0,"epoch_samples":100,"batch":10,)"
      R"("engine_peak_bytes":1000000000,"ceiling_bytes":2000,"precision":{"conv1":"bf16"}})"
      "\n"
      R"({"event":"step","step":5,"samples":50,"seconds":1,"loss":2.5,"rss_bytes":1500})"
      "\n"
      R"({"event":"step","step":10,"samples":100,"seconds":3,"loss":1.5})"
      "\n"
      R"({"event":"control","step":10,"samples":100,"seconds":3,"changes":[)"
      R"({"what":"precision conv1","from":"bf16","to":"fp32","reason":"variance"},)"
      R"({"what":"step size conv1","from":1,"to":0.25,"reason":"curvature"},)"
      R"({"what":"batch","from":10,"to":20,"reason":"room"}]})"
      "\n"
      R"({"event":"curvature","step":10,"layers":[{"name":"conv1","lambda":[8,2]}],)"
      R"("noise_scale":64})"
      "\n"
      R"({"event":"epoch","step":10,"samples":100,"seconds":4,"epoch":1,"test_accuracy":0.5,)"
      R"("epoch_seconds":2,"train_loss":2})"
      "\n"
      R"({"event":"step","step":12,"samp)");
  const RunLog run = read();
  EXPECT_EQ(run.last_step, 10);
  EXPECT_EQ(run.unreadable_lines, 0);  // the last line is only not finished
  EXPECT_EQ(run.step_loss.points().back().x, 1.0);
  ASSERT_EQ(run.throughput.points().size(), 1);
  EXPECT_EQ(run.throughput.points()[0].y, 25);  // 50 samples in 2 seconds
  EXPECT_EQ(run.batch.points().back().y, 20);
  EXPECT_EQ(run.precision.at(0, 0), 1);
  EXPECT_EQ(run.precision.at(0, 10), 0);
  EXPECT_EQ(run.curvature.at(0, 10), 8);
  EXPECT_EQ(run.step_size.at(0, 10), 0.25F);
  ASSERT_EQ(run.decisions.size(), 3);
  EXPECT_EQ(run.decisions[1].to, "0.25");
  // 50 % / (2 s x 1 GB)
  EXPECT_EQ(run.epoch_score.points().back().y, 25);
}

TEST_F(Run, PageIsWholeAndHasEveryChart) {
  put("metrics.jsonl", "");
  const std::string text = page();
  EXPECT_THAT(text, testing::StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(text, testing::EndsWith("</html>\n"));
  for (const char* const id :
       {"headline", "loss", "accuracy", "rate", "score", "seconds", "throughput", "peak", "batch",
        "memory", "noise", "precision", "curvature", "step-size", "decisions", "configuration"}) {
    EXPECT_THAT(text, HasSubstr(std::string("id=\"") + id + "\"")) << id;
  }
  EXPECT_THAT(text, Not(HasSubstr("http")));  // no network
}

TEST_F(Run, TextOfARunCannotBreakThePage) {
  put("summary.json", R"({"model":"<script>alert(1)</script>","status":"done\"x"})");
  put("config.toml", "# run\nout = \"a\\\"<b>&\" # command line\n");
  put("metrics.jsonl", R"({"event":"warning","step":1,"message":"<img src=x>"})"
                       "\n[1]\n{\"a\":\n\xff\xfe\n{}\n{\"event\":7,\"step\":\"x\"}\n");
  const std::string text = page();
  EXPECT_THAT(text, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(text, Not(HasSubstr("<img")));
  EXPECT_THAT(text, Not(HasSubstr("<b>&\"")));
  EXPECT_THAT(text, HasSubstr("3 lines of metrics.jsonl could not be read"));
}

TEST_F(Run, LongRunsStaySmall) {
  std::ofstream file(directory_ + "/metrics.jsonl");
  constexpr int kSteps = 10'000;
  for (int i = 0; i < kSteps; ++i) {
    file << R"({"event":"control","step":)" << i << R"(,"samples":)" << i
         << R"(,"changes":[{"what":"precision l)" << i % 50
         << R"(","from":"bf16","to":"fp32","reason":"r"}]})" << '\n';
  }
  file << std::string(3 << 20, 'x') << '\n';  // no event is that long
  file.close();
  const RunLog run = read();
  EXPECT_EQ(run.decision_count, kSteps);
  EXPECT_EQ(run.decisions.size() + run.decisions_left_out, kSteps);
  EXPECT_LE(run.decisions.size(), 400);
  EXPECT_EQ(run.decisions.front().step, 0);
  EXPECT_EQ(run.decisions.back().step, kSteps - 1);
  EXPECT_EQ(run.precision.rows(), 50);
  EXPECT_EQ(run.unreadable_lines, 1);
  EXPECT_LT(page().size(), 1 << 20);
}

TEST_F(Run, RefusesWithASentence) {
  const auto done = write_report({directory_}, directory_ + "/report.html");
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kInvalid);
  EXPECT_THAT(done.error().message, HasSubstr("not the directory of a run"));
  EXPECT_FALSE(fs::exists(directory_ + "/report.html"));
  put("metrics.jsonl", "");
  const auto nowhere = write_report({directory_}, directory_ + "/none/report.html");
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code, ErrorCode::kFailed);
}

}  // namespace
}  // namespace tri::report
