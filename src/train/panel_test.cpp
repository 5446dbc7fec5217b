#include "train/panel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

namespace tri::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

PanelState example_panel() {
  return {.title = "resnet18 on fashion-mnist, triaccel",
          .epoch = 3,
          .epochs = 15,
          .epoch_share = 0.5,
          .step = 1250,
          .loss = 0.41234,
          .accuracy = 0.8812,
          .best_accuracy = 0.884,
          .images_per_second = 1234.4,
          .memory_bytes = uint64_t{72} << 20,
          .ceiling_bytes = uint64_t{96} << 20,
          .batch = 128,
          .precisions = {{"fp32", 0.03}, {"bf16", 0.92}, {"fp16", 0.05}, {"fp8", 0}},
          .seconds_left = 250};
}

size_t columns_of(const std::string& line) {
  size_t columns = 0;
  for (const char c : line) columns += (static_cast<uint8_t>(c) & 0xc0) != 0x80 ? 1 : 0;
  return columns;
}

TEST(RenderPanel, At80Columns) {
  EXPECT_THAT(render_panel(example_panel(), 80, false),
              ElementsAre("resnet18 on fashion-mnist, triaccel",
                          "epoch 3/15 [##########----------]  50 %  step 1250  4m 10s left",
                          "loss 0.4123  accuracy 88.12 % (best 88.40 %)  1234 images/s",
                          "memory [###############-----] 72.0 MiB of 96.0 MiB  batch 128",
                          "fp32 3 %  bf16 92 %  fp16 5 %"));
}

TEST(RenderPanel, At40Columns) {
  EXPECT_THAT(
      render_panel(example_panel(), 40, false),
      ElementsAre("resnet18 on fashion-mnist, triaccel", "epoch 3/15 [#####-----]  50 %  step 1250",
                  "4m 10s left", "loss 0.4123", "accuracy 88.12 % (best 88.40 %)", "1234 images/s",
                  "memory [#######---] 72.0 MiB of 96.0 MiB", "batch 128",
                  "fp32 3 %  bf16 92 %  fp16 5 %"));
}

TEST(RenderPanel, At120ColumnsInUtf8) {
  const std::vector<std::string> lines = render_panel(example_panel(), 120, true);
  ASSERT_EQ(lines.size(), 5U);
  std::string half;
  for (int i = 0; i < 15; ++i) half += "\xe2\x96\x88";
  EXPECT_EQ(lines[1],
            "epoch 3/15 [" + half + std::string(15, ' ') + "]  50 %  step 1250  4m 10s left");
}

TEST(RenderPanel, DrawsEighthsOfAColumn) {
  PanelState state = example_panel();
  state.epoch_share = 3.0 / 64;  // of 8 columns: three eighths
  EXPECT_THAT(render_panel(state, 32, true)[1], HasSubstr("[\xe2\x96\x8d       ]"));
}

TEST(RenderPanel, NeverExceedsTheWidth) {
  PanelState states[] = {example_panel(), example_panel(), {}};
  states[1].title = std::string(300, 'x');
  states[1].epoch_share = std::numeric_limits<double>::quiet_NaN();
  states[1].loss = std::numeric_limits<double>::infinity();
  states[1].memory_bytes = std::numeric_limits<uint64_t>::max();
  states[1].images_per_second = 1e300;
  states[1].seconds_left = -1;
  for (const PanelState& state : states) {
    for (size_t columns = 1; columns <= 150; ++columns) {
      for (const bool utf8 : {false, true}) {
        for (const std::string& line : render_panel(state, columns, utf8)) {
          EXPECT_LE(columns_of(line), columns) << line;
        }
      }
    }
  }
}

TEST(RenderPanel, ShowsWhatIsKnown) {
  PanelState state = example_panel();
  state.loss = state.accuracy = state.seconds_left = std::nullopt;
  state.ceiling_bytes = 0;
  EXPECT_THAT(render_panel(state, 80, false),
              ElementsAre("resnet18 on fashion-mnist, triaccel",
                          "epoch 3/15 [##########----------]  50 %  step 1250",
                          "loss -  accuracy -  1234 images/s", "memory 72.0 MiB  batch 128",
                          "fp32 3 %  bf16 92 %  fp16 5 %"));
}

TEST(RenderEpoch, IsOneLine) {
  EXPECT_EQ(render_epoch(example_panel(), SIZE_MAX),
            "epoch 3/15  step 1250  loss 0.4123  accuracy 88.12 %  (best 88.40 %)  1234 images/s  "
            "memory 72.0 MiB of 96.0 MiB  batch 128  fp32 3 %  bf16 92 %  fp16 5 %  4m 10s left");
}

TEST(RenderEpoch, LeavesOutWhatMattersLess) {
  EXPECT_EQ(render_epoch(example_panel(), 110),
            "epoch 3/15  loss 0.4123  accuracy 88.12 %  1234 images/s  "
            "memory 72.0 MiB of 96.0 MiB  batch 128  4m 10s left");
  EXPECT_EQ(render_epoch(example_panel(), 80),
            "epoch 3/15  loss 0.4123  accuracy 88.12 %  1234 images/s  batch 128  4m 10s left");
  EXPECT_EQ(render_epoch(example_panel(), 40), "epoch 3/15  accuracy 88.12 %");
  EXPECT_EQ(render_epoch(example_panel(), 5), "epoch 3/15");
  for (size_t columns = 10; columns < 200; ++columns)
    EXPECT_LE(render_epoch(example_panel(), columns).size(), columns);
}

TEST(DurationText, ChoosesItsUnits) {
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(59.4), "59s");
  EXPECT_EQ(duration_text(59.6), "1m 00s");
  EXPECT_EQ(duration_text(3725), "1h 02m");
  EXPECT_EQ(duration_text(90'000), "1d 01h");
  EXPECT_EQ(duration_text(std::nan("")), "-");
}

struct Recorded {
  std::string text;
  size_t columns = 80;
  Screen screen(bool live) {
    return {.write = [this](std::string_view more) { text += more; },
            .columns = [this] { return columns; },
            .live = live,
            .utf8 = false};
  }
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Panel, RedrawsInPlaceAndNotTooOften) {
  Recorded recorded;
  Panel panel(recorded.screen(true));
  const std::string drawing = joined(render_panel(example_panel(), 79, false));
  panel.update(example_panel(), 1000);
  EXPECT_EQ(recorded.text, drawing);
  panel.update(example_panel(), 1000 + Panel::kMinIntervalNs - 1);
  EXPECT_EQ(recorded.text, drawing);
  panel.update(example_panel(), 1000 + Panel::kMinIntervalNs);
  EXPECT_EQ(recorded.text, drawing + "\x1b[5A\r\x1b[J" + drawing);
}

TEST(Panel, KeepsNotesAboveItself) {
  Recorded recorded;
  Panel panel(recorded.screen(true));
  panel.update(example_panel(), 0);
  recorded.text.clear();
  panel.note("epoch 1");
  EXPECT_EQ(recorded.text,
            "\x1b[5A\r\x1b[Jepoch 1\n" + joined(render_panel(example_panel(), 79, false)));
  recorded.text.clear();
  panel.close();
  panel.close();
  EXPECT_EQ(recorded.text, "\x1b[5A\r\x1b[J");
}

TEST(Panel, WipesWrappedLinesOfAWindowThatShrank) {
  Recorded recorded;
  Panel panel(recorded.screen(true));
  panel.update(example_panel(), 0);
  recorded.text.clear();
  recorded.columns = 40;
  panel.close();
  // Of the five lines three are wider than 40 columns and take two rows each.
  EXPECT_EQ(recorded.text, "\x1b[8A\r\x1b[J");
}

TEST(Panel, WritesPlainLinesWhereItCannotMove) {
  Recorded recorded;
  Panel panel(recorded.screen(false));
  panel.update(example_panel(), 0);
  EXPECT_EQ(recorded.text, "");
  panel.epoch_done(example_panel());
  panel.close();
  EXPECT_EQ(recorded.text, render_epoch(example_panel(), SIZE_MAX) + "\n");
}

TEST(Panel, FitsTheLineOfAnEpochToTheTerminal) {
  Recorded recorded;
  recorded.columns = 60;
  Screen screen = recorded.screen(false);
  screen.terminal = true;
  Panel(screen).epoch_done(example_panel());
  EXPECT_EQ(recorded.text, render_epoch(example_panel(), 59) + "\n");
}

TEST(Panel, LeavesTinyWindowsAlone) {
  Recorded recorded;
  recorded.columns = 10;
  Panel panel(recorded.screen(true));
  panel.update(example_panel(), 0);
  EXPECT_EQ(recorded.text, "");
}

class LocaleTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* const variable : {"LC_ALL", "LC_CTYPE"}) ::unsetenv(variable);
  }
};

TEST_F(LocaleTest, TheStrongestVariableDecides) {
  ::setenv("LC_ALL", "", 1);
  ::setenv("LC_CTYPE", "de_DE.utf8", 1);
  EXPECT_TRUE(locale_is_utf8());
  ::setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(locale_is_utf8());
  ::setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_TRUE(locale_is_utf8());
}

TEST(Screen, IsNotLiveWithoutATerminal) {
  EXPECT_FALSE(screen_of(-1, false).live);
  EXPECT_EQ(screen_of(-1, false).columns(), 80U);
}

}  // namespace
}  // namespace tri::train
