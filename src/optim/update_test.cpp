#include "optim/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/draws.h"
#include "optim/kernel.h"
#include "optim/param_fixture.h"
#include "optim/torch_golden.h"
#include "simd/target_fixture.h"

namespace tri::optim {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Update, FollowsPyTorch) {
  for (const golden::Case& example : golden::kCases) {
    SCOPED_TRACE(example.name);
    Param param(example.rule, WeightForm::kF32, StateForm::kF32,
                std::vector<float>(golden::kStart, golden::kStart + golden::kCount));
    const auto expect_near = [&](const float(&wanted)[golden::kCount], int steps) {
      const std::vector<float> weights = param.weights();
      for (size_t i = 0; i < golden::kCount; ++i) {
        // Both round each of about 8 operations per step, PyTorch some of them fused; errors are
        // relative to the largest value on the way, which a step of lr * g bounds.
        double scale = std::abs(golden::kStart[i]);
        for (const auto& grad : golden::kGrads) {
          scale = std::max(scale, example.hyper.lr * std::abs(double{grad[i]}));
        }
        const double tolerance = 16.0 * steps * 0x1p-24 * scale;
        EXPECT_NEAR(weights[i], wanted[i], tolerance) << "element " << i << ", step " << steps;
      }
    };
    Hyper hyper = example.hyper;
    for (size_t step = 0; step < golden::kSteps; ++step) {
      hyper.step = static_cast<int64_t>(step) + 1;
      param.step(coefficients(example.rule, hyper), golden::kGrads[step]);
      if (step == 0) expect_near(example.after_one, 1);
    }
    expect_near(example.after_all, static_cast<int>(golden::kSteps));
  }
}

class UpdateTarget : public simd::TargetTest {};

TEST_P(UpdateTarget, EqualsTheReference) {
  constexpr size_t kZeros = 8 * kBlock, kCount = kZeros + 5 * kBlock + 13;
  // From the second step on the first blocks' are zeros of both signs.
  const auto gradient = [](uint32_t step) {
    std::vector<float> grad = random_floats(kCount, 7 + step, 0.1);
    for (size_t i = 0; step > 0 && i < kZeros; ++i) grad[i] *= 0.0f;
    return grad;
  };
  for (const Form form : kForms) {
    for (const Rule rule : kRules) {
      for (const bool variant : {false, true}) {
        SCOPED_TRACE(form.text(rule));
        const Hyper hyper{.lr = 0.03,
                          .weight_decay = 0.02,
                          .nesterov = variant,
                          .decoupled = variant,
                          .step = 3,
                          .grad_scale = 0.5};
        const Coefficients c = coefficients(rule, hyper);
        Param wanted(rule, form.weight, form.state, random_floats(kCount, 1, 1.0));
        std::vector<GradStats> wanted_stats;
        std::vector<Norms> wanted_norms;
        for (uint32_t step = 0; step < 4; ++step) {
          const auto grad = gradient(step);
          const Noise noise{.seed = 5, .step = step, .tensor = 2};
          const Task task{c, wanted.storage(), 0, kCount, grad.data(), noise};
          wanted_norms.push_back(reference(rule).measure(task));
          wanted_stats.push_back(reference(rule).update(task));
        }
        Param param(rule, form.weight, form.state, random_floats(kCount, 1, 1.0));
        for (uint32_t step = 0; step < 4; ++step) {
          const auto grad = gradient(step);
          const Noise noise{.seed = 5, .step = step, .tensor = 2};
          EXPECT_EQ(measure(c, param.storage(), 0, kCount, grad.data()), wanted_norms[step]);
          EXPECT_EQ(update(c, param.storage(), 0, kCount, grad.data(), noise), wanted_stats[step]);
        }
        EXPECT_TRUE(param.same_bytes(wanted));
      }
    }
  }
}
TRI_FOR_EACH_TARGET(UpdateTarget);

TEST(Update, TilesGiveTheSameBytesAsTheWhole) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    const auto form = draw.of(kForms);
    const auto rule = draw.of(kRules);
    const auto count = draw.in<size_t>(1, 700);
    const auto values = random_floats(count, 3, 1.0);
    const auto grad = random_floats(count, 4, 0.1);
    const Coefficients c = coefficients(rule, {.lr = 0.1, .weight_decay = 0.01});
    const Noise noise{.seed = 9, .step = 4, .tensor = 1};

    Param whole(rule, form.weight, form.state, values);
    update(c, whole.storage(), 0, count, grad.data(), noise);
    Param tiled(rule, form.weight, form.state, values);
    for (size_t at = 0; at < count;) {
      const size_t tile = std::min(count - at, kBlock * draw.in<size_t>(1, 5));
      update(c, tiled.storage(), at, tile, grad.data() + at, noise);
      at += tile;
    }
    EXPECT_TRUE(tiled.same_bytes(whole));
  }
}

TEST(Update, StatisticsAreOfTheGivenGradient) {
  Param param(Rule::kSgd, WeightForm::kF32, StateForm::kF32, std::vector<float>(40, 1.0f));
  std::vector<float> grad(40, 0.0f);
  grad[0] = 3;
  grad[39] = -5;
  const GradStats stats = param.step(coefficients(Rule::kSgd, {.grad_scale = 0.25}), grad.data());
  EXPECT_EQ(stats.sum, -2);
  EXPECT_EQ(stats.sum_squares, 34);
  EXPECT_EQ(stats.max_abs, 5);
  EXPECT_EQ(stats.nonfinite, 0u);
}

TEST(Update, StatisticsDoNotOverflowWhereTheGradientDoesNot) {
  Param param(Rule::kSgd, WeightForm::kF32, StateForm::kF32, std::vector<float>(32, 1.0f));
  const std::vector<float> grad(32, 1e30f);
  const GradStats stats = param.step(coefficients(Rule::kSgd, {}), grad.data());
  const double square = double{1e30f} * double{1e30f};
  EXPECT_NEAR(stats.sum_squares, 32 * square, 32 * square * 32 * 0x1p-53);
}

TEST(Update, ABlockWithANonFiniteGradientStaysAsItWas) {
  for (const Form form : kForms) {
    for (const Rule rule : kRules) {
      SCOPED_TRACE(form.text(rule));
      const Coefficients c = coefficients(rule, {});
      Param param(rule, form.weight, form.state, random_floats(3 * kBlock, 1, 1.0));
      const auto warm = random_floats(3 * kBlock, 2, 1.0);
      param.step(c, warm.data());
      const std::vector<float> before = param.weights();
      Param sound = param;
      auto grad = warm;
      sound.step(c, grad.data());
      grad[kBlock + 3] = kInf;
      grad[kBlock + 4] = std::nanf("");
      const GradStats stats = param.step(c, grad.data());
      EXPECT_EQ(stats.nonfinite, 2u);
      EXPECT_TRUE(std::isfinite(stats.sum) && std::isfinite(stats.max_abs));
      const std::vector<float> after = param.weights();
      const std::vector<float> expected = sound.weights();
      for (size_t i = 0; i < after.size(); ++i) {
        const bool skipped = i / kBlock == 1;
        EXPECT_EQ(after[i], skipped ? before[i] : expected[i]) << i;
      }
    }
  }
}

TEST(Update, SgdWithoutMomentumNeedsNoState) {
  const std::vector<float> values = random_floats(50, 1, 1.0);
  std::vector<std::byte> bytes(weight_bytes(WeightForm::kF32, 50) + 64);
  auto* aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
  const ParamStorage bare = bind(WeightForm::kF32, StateForm::kF32, 50, 0, aligned, nullptr);
  init_storage(bare, values);
  Param full(Rule::kSgd, WeightForm::kF32, StateForm::kF32, values);
  const Coefficients c = coefficients(Rule::kSgd, {.momentum = 0});
  for (int step = 0; step < 3; ++step) {
    update(c, bare, 0, 50, values.data(), {});
    full.step(c, values.data());
  }
  std::vector<float> out(50);
  read_weights(bare, 0, out);
  EXPECT_EQ(out, full.weights());
}

// Against the formulas of the papers in double precision.
TEST(Update, LarsAndLambScaleTheStepByTheNorms) {
  const auto values = random_floats(100, 1, 1.0);
  const auto grad = random_floats(100, 2, 0.01);
  double weight_squares = 0, grad_squares = 0;
  for (size_t i = 0; i < 100; ++i) {
    weight_squares += double{values[i]} * values[i];
    grad_squares += double{grad[i]} * grad[i];
  }
  const Hyper hyper{.lr = 0.5, .eps = 1e-6, .weight_decay = 0.1, .step = 1};

  Param lars(Rule::kLars, WeightForm::kF32, StateForm::kF32, values);
  Coefficients c = coefficients(Rule::kLars, hyper);
  apply_trust(c, hyper, measure(c, lars.storage(), 0, 100, grad.data()));
  lars.step(c, grad.data());
  const double trust = 0.001 * std::sqrt(weight_squares) /
                       (std::sqrt(grad_squares) + 0.1 * std::sqrt(weight_squares) + 1e-6);
  for (size_t i = 0; i < 100; ++i) {
    const double wanted = values[i] - 0.5 * trust * (grad[i] + 0.1 * values[i]);
    EXPECT_NEAR(lars.weights()[i], wanted, 8 * 0x1p-24 * std::abs(values[i]));
  }

  Param lamb(Rule::kLamb, WeightForm::kF32, StateForm::kF32, values);
  c = coefficients(Rule::kLamb, hyper);
  apply_trust(c, hyper, measure(c, lamb.storage(), 0, 100, grad.data()));
  lamb.step(c, grad.data());
  std::vector<double> r(100);
  double r_squares = 0;
  for (size_t i = 0; i < 100; ++i) {
    r[i] = grad[i] / (std::abs(double{grad[i]}) + 1e-6) + 0.1 * values[i];
    r_squares += r[i] * r[i];
  }
  for (size_t i = 0; i < 100; ++i) {
    const double step = 0.5 * std::sqrt(weight_squares / r_squares) * r[i];
    EXPECT_NEAR(lamb.weights()[i], values[i] - step,
                16 * 0x1p-24 * (std::abs(values[i]) + std::abs(step)));
  }
}

TEST(Update, NamesRoundTrip) {
  for (const Rule rule : kRules) EXPECT_EQ(parse_rule(name(rule)), rule);
  EXPECT_FALSE(parse_rule("adagrad"));
}

}  // namespace
}  // namespace tri::optim
