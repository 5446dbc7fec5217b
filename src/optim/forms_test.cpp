// What each storage form promises, against fp32 arithmetic and against the formats' own steps.
#include <gtest/gtest.h>

#include <cmath>

#include "base/draws.h"
#include "numeric/round.h"
#include "numeric/split.h"
#include "optim/forms_ref.h"
#include "optim/param_fixture.h"

namespace tri::optim {
namespace {

using numeric::Format;

constexpr WeightForm kWeightForms[] = {WeightForm::kF32,     WeightForm::kF32AndBf16,
                                       WeightForm::kBf16x16, WeightForm::kBf16x8,
                                       WeightForm::kF16x8,   WeightForm::kBf16Stochastic};

// Relative size of half a step of the form's grid, for normal values.
double half_step(WeightForm form) {
  switch (form) {
    case WeightForm::kF32:
    case WeightForm::kF32AndBf16:
    case WeightForm::kBf16x16:
      return 0;
    case WeightForm::kBf16x8:
      return 0x1p-16;
    case WeightForm::kF16x8:
      return 0x1p-19;
    case WeightForm::kBf16Stochastic:
      return 0x1p-8;
  }
  return 0;
}

TEST(Forms, BytesPerParameter) {
  constexpr size_t kCount = 1'000'000;
  const auto per_parameter = [](WeightForm weight, StateForm state, size_t moments) {
    return static_cast<double>(weight_bytes(weight, kCount) + state_bytes(state, kCount, moments)) /
           kCount;
  };
  EXPECT_NEAR(per_parameter(WeightForm::kF32, StateForm::kF32, 1), 8, 0.001);
  EXPECT_NEAR(per_parameter(WeightForm::kF32, StateForm::kF32, 2), 12, 0.001);
  EXPECT_NEAR(per_parameter(WeightForm::kF32AndBf16, StateForm::kF32, 1), 10, 0.001);
  EXPECT_NEAR(per_parameter(WeightForm::kBf16x16, StateForm::kBf16, 1), 6, 0.001);
  EXPECT_NEAR(per_parameter(WeightForm::kBf16x8, StateForm::kInt8, 1), 4.0625, 0.001);
  EXPECT_NEAR(per_parameter(WeightForm::kBf16x8, StateForm::kInt8, 2), 5.125, 0.001);
}

TEST(Forms, PartsLieInsideTheirBlocksAndApart) {
  for (const size_t count : {size_t{1}, size_t{31}, size_t{32}, size_t{33}, size_t{1000}}) {
    for (const WeightForm form : kWeightForms) {
      const Param param(Rule::kAdam, form, StateForm::kInt8, std::vector<float>(count, 1.0f));
      const ParamStorage& s = param.storage();
      EXPECT_EQ(weight_bytes(form, count) % 64, 0u);
      EXPECT_EQ(state_bytes(StateForm::kInt8, count, 2) % 64, 0u);
      for (const std::byte* part : {s.main, s.remainder, s.working, s.first, s.second}) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % 64, 0u);
      }
      EXPECT_GE(s.first_scale - s.first, static_cast<ptrdiff_t>(count));
      EXPECT_GE(s.second - s.first_scale, static_cast<ptrdiff_t>(2 * ((count + 31) / 32)));
    }
  }
}

TEST(Forms, NamesRoundTrip) {
  for (const WeightForm form : kWeightForms) EXPECT_EQ(parse_weight_form(name(form)), form);
  for (const StateForm form : {StateForm::kF32, StateForm::kBf16, StateForm::kInt8}) {
    EXPECT_EQ(parse_state_form(name(form)), form);
  }
  EXPECT_FALSE(parse_weight_form("bf16"));
  EXPECT_FALSE(parse_state_form("int4"));
}

TEST(Forms, AnyRangeReadsWhatWasWritten) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    const WeightForm form = draw.of(kWeightForms);
    const auto count = draw.in<size_t>(1, 200);
    const auto begin = draw.in<size_t>(0, count);
    const auto length = draw.in<size_t>(0, count - begin + 1);
    const auto before = random_floats(count, 1, 1.0);
    const auto values = random_floats(length, 2, 1.0);
    Param param(Rule::kSgd, form, StateForm::kF32, before);
    write_weights(param.storage(), begin, values);
    std::vector<float> out(length);
    read_weights(param.storage(), begin, out);
    const std::vector<float> all = param.weights();
    for (size_t i = 0; i < count; ++i) {
      const bool inside = i >= begin && i < begin + length;
      const float wanted = inside ? values[i - begin] : before[i];
      ASSERT_LE(std::abs(all[i] - wanted), half_step(form) * std::abs(wanted));
      ASSERT_EQ(all[i], load_weight_ref(param.storage(), i));
      if (inside) {
        ASSERT_EQ(out[i - begin], all[i]);
      }
    }
  }
}

// The weight that 16-bit layers compute with is the stored one, rounded to nearest.
TEST(Forms, WorkingWeightsAreTheRoundedOnes) {
  for (const WeightForm form : kWeightForms) {
    SCOPED_TRACE(name(form));
    Param param(Rule::kSgd, form, StateForm::kF32, random_floats(500, 1, 1.0));
    param.step(coefficients(Rule::kSgd, {}), random_floats(500, 2, 1.0).data());
    const std::vector<float> merged = param.weights();
    const WorkingWeights working = working_weights(param.storage());
    const double half_ulp = working.format == Format::kF32   ? 0
                            : working.format == Format::kF16 ? 0x1p-11
                                                             : 0x1p-8;
    for (size_t i = 0; i < merged.size(); ++i) {
      uint32_t bits = 0;
      const size_t width = numeric::storage_bytes(working.format);
      std::memcpy(&bits, working.data + i * width, width);
      const float value = numeric::decode(working.format, bits);
      // Below fp16's smallest normal number its step no longer shrinks.
      EXPECT_LE(std::abs(value - merged[i]), half_ulp * std::abs(merged[i]) + 0x1p-25) << i;
    }
  }
}

TEST(Forms, Bf16Plus16FollowsFp32BitForBit) {
  for (const Rule rule : kRules) {
    const auto values = random_floats(300, 1, 1.0);
    Param full(rule, WeightForm::kF32, StateForm::kF32, values);
    Param split(rule, WeightForm::kBf16x16, StateForm::kF32, values);
    for (int step = 1; step <= 100; ++step) {
      const auto grad = random_floats(300, 100 + static_cast<uint32_t>(step), 0.1);
      const Coefficients c = coefficients(rule, {.lr = 0.01, .weight_decay = 0.1, .step = step});
      full.step(c, grad.data());
      split.step(c, grad.data());
    }
    EXPECT_EQ(full.weights(), split.weights()) << name(rule);
  }
}

// One step from equal weights: the form differs from fp32 by its own rounding and nothing else.
TEST(Forms, ARoundedWeightIsWithinHalfAStepOfFp32) {
  for (const WeightForm form : {WeightForm::kBf16x8, WeightForm::kF16x8}) {
    Param narrow(Rule::kSgd, form, StateForm::kF32, random_floats(3000, 1, 1.0));
    Param full(Rule::kSgd, WeightForm::kF32, StateForm::kF32, narrow.weights());
    const auto grad = random_floats(3000, 2, 0.1);
    const Coefficients c = coefficients(Rule::kSgd, {.lr = 0.01});
    narrow.step(c, grad.data());
    full.step(c, grad.data());
    const auto got = narrow.weights(), wanted = full.weights();
    for (size_t i = 0; i < got.size(); ++i) {
      const double grain = std::ldexp(1.0, std::ilogb(wanted[i]));
      EXPECT_LE(std::abs(got[i] - wanted[i]), half_step(form) * grain + 0x1p-33) << i;
    }
  }
}

TEST(Forms, StochasticRoundingIsUnbiased) {
  constexpr size_t kCount = 1 << 16;
  constexpr double kUlp = 0x1p-7;  // of bf16 in [1, 2)
  for (const double fraction : {0.01, 0.3, 0.5, 0.9}) {
    Param param(Rule::kSgd, WeightForm::kBf16Stochastic, StateForm::kF32,
                std::vector<float>(kCount, 1.5f));
    const std::vector<float> grad(kCount, static_cast<float>(-fraction * kUlp));
    param.step(coefficients(Rule::kSgd, {.lr = 1}), grad.data(), {.seed = 1, .step = 2});
    double sum = 0;
    for (const float w : param.weights()) {
      EXPECT_TRUE(w == 1.5f || w == 1.5f + kUlp) << w;
      sum += w - 1.5;
    }
    // A mean of kCount draws: five standard deviations, and the noise's 16 bits.
    const double deviation = kUlp * std::sqrt(fraction * (1 - fraction) / kCount);
    EXPECT_NEAR(sum / kCount, fraction * kUlp, 5 * deviation + kUlp * 0x1p-16);
  }
}

// Every part has its own noise, and every step, tensor and seed another one.
TEST(Forms, NoiseDependsOnEachCounter) {
  const auto after = [](Noise noise) {
    Param param(Rule::kSgd, WeightForm::kBf16Stochastic, StateForm::kBf16,
                std::vector<float>(256, 1.5f));
    const std::vector<float> grad(256, 0x1p-8f + 0x1p-17f);
    param.step(coefficients(Rule::kSgd, {.lr = 1}), grad.data(), noise);
    return param;
  };
  const Param base = after({.seed = 1, .step = 2, .tensor = 3});
  EXPECT_TRUE(base.same_bytes(after({.seed = 1, .step = 2, .tensor = 3})));
  EXPECT_FALSE(base.same_bytes(after({.seed = 2, .step = 2, .tensor = 3})));
  EXPECT_FALSE(base.same_bytes(after({.seed = 1, .step = 3, .tensor = 3})));
  EXPECT_FALSE(base.same_bytes(after({.seed = 1, .step = 2, .tensor = 4})));
  float moments[kBlock];
  load_moment_ref(base.storage(), false, 0, moments);
  const std::vector<float> weights = base.weights();
  bool same = true;
  for (size_t i = 0; i < kBlock; ++i) same &= (weights[i] < 1.5f) == (moments[i] > 0x1p-8f);
  EXPECT_FALSE(same) << "weights and moment share their noise";
}

// lr * g is 2^-12 of the weight: bf16 alone, with its step of 2^-7, would never move.
TEST(Forms, SmallUpdatesDoNotStall) {
  constexpr int kSteps = 200;
  constexpr size_t kCount = 4096;
  constexpr double kDelta = 0x1p-12;
  const float stalled = static_cast<float>(1.5 - kDelta);
  ASSERT_EQ(numeric::decode(Format::kBf16, numeric::encode(Format::kBf16, stalled).bits), 1.5f);
  for (const WeightForm form : kWeightForms) {
    SCOPED_TRACE(name(form));
    Param param(Rule::kSgd, form, StateForm::kF32, std::vector<float>(kCount, 1.5f));
    const std::vector<float> grad(kCount, 1.0f);
    const Coefficients c = coefficients(Rule::kSgd, {.lr = kDelta, .momentum = 0});
    for (uint64_t step = 0; step < kSteps; ++step) param.step(c, grad.data(), {.step = step});
    double mean = 0;
    for (const float w : param.weights()) mean += w / kCount;
    // The walk of the stochastic form: a variance of at most ulp * delta per step and element.
    const double deviation =
        form == WeightForm::kBf16Stochastic ? std::sqrt(kSteps * 0x1p-7 * kDelta / kCount) : 0;
    EXPECT_NEAR(mean, 1.5 - kSteps * kDelta, 5 * deviation + kSteps * half_step(form) * 0x1p-8);
  }
}

// One step from equal moments: the stored ones differ from fp32 by the step of their group.
TEST(Forms, NarrowStateIsWithinAStepOfFp32) {
  constexpr size_t kCount = 50 * kBlock;
  const auto values = random_floats(kCount, 1, 1.0);
  const auto grad = random_floats(kCount, 2, 0.1);
  const Coefficients c = coefficients(Rule::kAdam, {});
  for (const StateForm form : {StateForm::kBf16, StateForm::kInt8}) {
    Param full(Rule::kAdam, WeightForm::kF32, StateForm::kF32, values);
    Param narrow(Rule::kAdam, WeightForm::kF32, form, values);
    full.step(c, grad.data());
    narrow.step(c, grad.data());
    for (size_t at = 0; at < kCount; at += kBlock) {
      float wanted[2][kBlock], got[2][kBlock];
      float largest[2] = {0, 0};
      for (const bool second : {false, true}) {
        load_moment_ref(full.storage(), second, at, wanted[second]);
        load_moment_ref(narrow.storage(), second, at, got[second]);
        for (const float x : wanted[second]) {
          largest[second] = std::max(largest[second], std::abs(x));
        }
      }
      for (size_t i = 0; i < kBlock; ++i) {
        if (form == StateForm::kBf16) {
          for (const int m : {0, 1}) {
            EXPECT_LE(std::abs(got[m][i] - wanted[m][i]), 0x1p-7 * std::abs(wanted[m][i]));
          }
          continue;
        }
        // numeric/state8.h; the scale is the largest rounded up to bf16.
        const double first_scale = largest[0] * (1 + 0x1p-7);
        const double second_scale = std::sqrt(largest[1]) * (1 + 0x1p-7);
        EXPECT_LE(std::abs(got[0][i] - wanted[0][i]), first_scale / 126);
        EXPECT_LE(std::abs(std::sqrt(got[1][i]) - std::sqrt(wanted[1][i])), second_scale / 255);
      }
    }
  }
}

}  // namespace
}  // namespace tri::optim
