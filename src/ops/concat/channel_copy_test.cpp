// Concatenation, split and shuffle through their operations, every element followed.
#include "ops/concat/channel_copy.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <vector>

#include "ops/drawn_floats.h"
#include "ops/operation.h"
#include "simd/convert.h"

namespace tri::ops {
namespace {

constexpr int64_t kSamples = 2;

std::vector<float> counted(int64_t count, float first) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

struct Passed {
  std::vector<float> output;
  std::vector<std::vector<float>> input_grads;  // added to 1000
};

// Both passes; the output's number i has gradient -i.
Passed run(OpKind kind, const Attributes& attr, const std::vector<Shape>& inputs,
           const Shape& output, size_t threads) {
  OperationSpec spec;
  spec.kind = kind;
  spec.attr = attr;
  spec.inputs = inputs;
  spec.output = output;
  spec.samples = kSamples;
  spec.threads = threads;
  const auto operation = make_operation(spec);
  std::vector<float> scratch(operation->needs().forward_scratch / 4);
  EXPECT_EQ(operation->needs().forward_scratch, operation->needs().backward_scratch);
  base::ThreadPool pool(threads);
  std::vector<std::vector<float>> values;
  std::vector<Source> sources;
  Passed passed;
  std::vector<Sink> sinks;
  for (const Shape& shape : inputs) {
    values.push_back(
        counted(kSamples * shape.elements(), 10000.0f * static_cast<float>(values.size())));
    sources.emplace_back().stored = {values.back().data(), Format::kF32, shape.c, shape.c,
                                     shape.pixels()};
    passed.input_grads.emplace_back(values.back().size(), 1000.0f);
    sinks.push_back(
        {passed.input_grads.back().data(), Format::kF32, shape.c, shape.c, shape.pixels(), true});
  }
  passed.output.resize(static_cast<size_t>(kSamples * output.elements()));
  std::vector<float> grad = counted(kSamples * output.elements(), 0.0f);
  for (float& g : grad) g = -g;
  PassArguments pass;
  pass.pool = &pool;
  pass.scratch = reinterpret_cast<std::byte*>(scratch.data());
  pass.inputs = sources;
  pass.output = {passed.output.data(), Format::kF32, output.c, output.c, output.pixels()};
  pass.output_grad.grad = {grad.data(), Format::kF32, output.c, output.c, output.pixels()};
  pass.input_grads = sinks;
  operation->forward(pass);
  operation->backward_data(pass);
  return passed;
}

// origin(channel) = (input, its channel).
void expect_moved(OpKind kind, const Attributes& attr, const std::vector<Shape>& inputs,
                  const Shape& output,
                  const std::function<std::pair<size_t, int64_t>(int64_t)>& origin) {
  std::vector<float> want(static_cast<size_t>(kSamples * output.elements()));
  std::vector<std::vector<float>> grads;
  for (const Shape& shape : inputs)
    grads.emplace_back(static_cast<size_t>(kSamples * shape.elements()), 1000.0f);
  for (int64_t row = 0; row < kSamples * output.pixels(); ++row)
    for (int64_t c = 0; c < output.c; ++c) {
      const auto [input, from] = origin(c);
      const int64_t to = row * output.c + c, at = row * inputs[input].c + from;
      want[static_cast<size_t>(to)] = 10000.0f * static_cast<float>(input) + static_cast<float>(at);
      grads[input][static_cast<size_t>(at)] -= static_cast<float>(to);
    }
  for (const size_t threads : {1, 2, 3, 8}) {
    const Passed passed = run(kind, attr, inputs, output, threads);
    EXPECT_EQ(passed.output, want);
    EXPECT_EQ(passed.input_grads, grads);
  }
}

TEST(Concat, joins_channels) {
  expect_moved(OpKind::kConcat, {}, {{3, 5, 3}, {3, 5, 1}, {3, 5, 9}}, {3, 5, 13}, [](int64_t c) {
    return c < 3   ? std::pair{size_t{0}, c}
           : c < 4 ? std::pair{size_t{1}, int64_t{0}}
                   : std::pair{size_t{2}, c - 4};
  });
}

TEST(Split, takes_channels_and_leaves_the_others_gradient_alone) {
  Attributes attr;
  attr.begin = 5;
  attr.count = 3;
  expect_moved(OpKind::kSplit, attr, {{4, 3, 11}}, {4, 3, 3}, [](int64_t c) {
    return std::pair{size_t{0}, c + 5};
  });
}

TEST(ChannelShuffle, transposes_groups) {
  for (const int64_t channels : {12, 78, 132})  // less than a vector, vectors and what is left
    for (const int64_t groups : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{6}, channels / 2}) {
      Attributes attr;
      attr.groups = groups;
      const Shape shape{2, 7, channels};
      expect_moved(OpKind::kChannelShuffle, attr, {shape}, shape, [&](int64_t c) {
        return std::pair{size_t{0}, c % groups * (channels / groups) + c / groups};
      });
    }
}

// Whether codes are moved or numbers stored anew, a copy gives back the codes that it read.
TEST(ChannelCopy, keeps_codes_of_every_format) {
  constexpr int64_t kChannels = 70, kFrom = 3, kTo = 5, kCopied = 66, kPixels = 35;
  const RowTiles tiles(kSamples, {5, 7, kChannels + kTo});
  base::ThreadPool pool(2);
  std::vector<std::byte> scratch(pool.threads() * copy_worker_bytes(tiles));
  const std::vector<float> values = drawn_floats(1, kSamples * kPixels * kChannels);
  for (size_t f = 0; f < numeric::kFormats; ++f) {
    const auto format = static_cast<Format>(f);
    const size_t bytes = numeric::storage_bytes(format);
    std::vector<std::byte> from(values.size() * bytes);
    simd::encode(format, values.data(), from.data(), values.size());
    const Stored stored{from.data(), format, kChannels, kChannels, kPixels};
    for (const int64_t groups : {1, 2, 3, 33}) {
      SCOPED_TRACE(testing::Message() << numeric::spec(format).name << ", groups " << groups);
      const int64_t width = kChannels + kTo;
      std::vector<std::byte> want(static_cast<size_t>(kSamples * kPixels * width) * bytes);
      for (int64_t row = 0; row < kSamples * kPixels; ++row)
        for (int64_t c = 0; c < kCopied; ++c) {
          const int64_t each = kCopied / groups, moved = c % each * groups + c / each;
          const auto read = static_cast<size_t>(row * kChannels + kFrom + c);
          const auto written = static_cast<size_t>(row * width + kTo + moved);
          std::copy_n(&from[read * bytes], bytes, &want[written * bytes]);
        }
      const ChannelCopy copy{kFrom, kTo, kCopied, groups};
      std::vector<std::byte> forward(want.size()), backward(want.size());
      Source source;
      source.stored = stored;
      const StoreCounts lost =
          copy_channels(tiles, copy, source, {forward.data(), format, width, width, kPixels},
                        scratch.data(), pool);
      GradSource grad;
      grad.grad = stored;
      copy_channels_grad(tiles, copy, grad, {backward.data(), format, width, width, kPixels},
                         scratch.data(), pool);
      EXPECT_EQ(forward, want);
      EXPECT_EQ(backward, want);
      EXPECT_EQ(lost.overflow + lost.underflow, 0u);
    }
  }
}

}  // namespace
}  // namespace tri::ops
