#include "ops/add/add.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/philox.h"
#include "ops/drawn_floats.h"
#include "simd/convert.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

constexpr int64_t kAddSamples = 3;
// Tiles of several pixels, of one pixel, and a row longer than a tile.
const tensor::Shape kShapes[] = {{4, 5, 7}, {70, 9, 33}, {2, 1, 9000}};

Stored stored(const std::vector<float>& v, const tensor::Shape& s) {
  return {v.data(), Format::kF32, s.c, s.c, s.pixels()};
}

class Add : public simd::TargetTest {};

TEST_P(Add, sums_in_order_and_rounds_once) {
  for (const tensor::Shape& shape : kShapes) {
    const RowTiles tiles(kAddSamples, shape);
    const int64_t count = kAddSamples * shape.elements();
    const std::vector<float> x = drawn_floats(1, count), y = drawn_floats(2, count),
                             z = drawn_floats(3, count);
    std::vector<Source> inputs(3);
    inputs[0].stored = stored(x, shape);
    inputs[1].stored = stored(y, shape);
    inputs[1].activation = Activation::kRelu;
    inputs[2].stored = stored(z, shape);
    std::vector<float> sums(x.size());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = x[i] + std::max(y[i], 0.0f) + z[i];
    for (const Format format : {Format::kF32, Format::kBf16, Format::kF8e4b4}) {
      const size_t bytes = x.size() * numeric::storage_bytes(format);
      std::vector<std::byte> want(bytes);
      const simd::ConvertCounts lost = simd::encode(format, sums.data(), want.data(), sums.size());
      for (const size_t threads : {1, 2, 3, 8}) {
        base::ThreadPool pool(threads);
        std::vector<float> scratch(threads * add_worker_bytes(tiles) / 4);
        std::vector<std::byte> got(bytes);
        const Sink out{got.data(), format, shape.c, shape.c, shape.pixels()};
        const StoreCounts counts =
            add_forward(tiles, inputs, out, reinterpret_cast<std::byte*>(scratch.data()), pool);
        EXPECT_EQ(got, want) << threads << " threads";
        EXPECT_EQ(counts.underflow, lost.underflow);
      }
    }
  }
}

TEST_P(Add, hands_its_gradient_to_every_input_even_in_place) {
  for (const tensor::Shape& shape : kShapes) {
    const RowTiles tiles(kAddSamples, shape);
    const int64_t count = kAddSamples * shape.elements();
    const std::vector<float> y = drawn_floats(1, count), dy = drawn_floats(2, count),
                             there = drawn_floats(3, count);
    std::vector<float> want(dy), added(there);
    for (size_t i = 0; i < want.size(); ++i) {
      want[i] = y[i] > 0 ? dy[i] : 0.0f;
      added[i] += want[i];
    }
    base::ThreadPool pool(2);
    std::vector<float> scratch(2 * add_worker_bytes(tiles) / 4);
    std::vector<float> in_place = dy, accumulated = there;
    GradSource grad;
    grad.grad = stored(in_place, shape);
    grad.value.stored = stored(y, shape);
    grad.value.activation = Activation::kRelu;
    const Sink sinks[] = {
        {in_place.data(), Format::kF32, shape.c, shape.c, shape.pixels(), false},
        {},
        {accumulated.data(), Format::kF32, shape.c, shape.c, shape.pixels(), true}};
    add_backward(tiles, grad, sinks, {}, reinterpret_cast<std::byte*>(scratch.data()), pool);
    EXPECT_EQ(in_place, want);
    EXPECT_EQ(accumulated, added);
  }
}

TRI_FOR_EACH_TARGET(Add);

}  // namespace
}  // namespace tri::ops
