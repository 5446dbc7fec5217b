#include "ops/rows/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/philox.h"
#include "numeric/round.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

constexpr Format kAllFormats[] = {Format::kF32,   Format::kBf16,   Format::kF16,
                                  Format::kF16e6, Format::kF8e4b4, Format::kF8e5};
constexpr Activation kActivations[] = {Activation::kNone, Activation::kRelu, Activation::kRelu6,
                                       Activation::kSilu, Activation::kSigmoid};

std::vector<float> draws(uint64_t seed, int64_t count, double spread = 2.0) {
  base::Stream stream(seed, base::Purpose::kInit);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(spread * (2.0 * double{stream.uniform()} - 1.0));
  return values;
}

uint32_t code(Format format, float value) {
  return format == Format::kF32 ? std::bit_cast<uint32_t>(value)
                                : numeric::encode(format, value).bits;
}
float decoded(Format format, uint32_t bits) {
  return format == Format::kF32 ? std::bit_cast<float>(bits) : numeric::decode(format, bits);
}

// A tensor in its format, and the numbers it really holds.
struct Held {
  Held(Format stored_as, const std::vector<float>& wanted)
      : format(stored_as), bytes(wanted.size() * numeric::storage_bytes(stored_as)) {
    for (size_t i = 0; i < wanted.size(); ++i) put(i, code(format, wanted[i]));
  }
  void put(size_t i, uint32_t bits) {
    std::memcpy(bytes.data() + i * numeric::storage_bytes(format), &bits,
                numeric::storage_bytes(format));
  }
  float at(int64_t i) const {
    uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + static_cast<size_t>(i) * numeric::storage_bytes(format),
                numeric::storage_bytes(format));
    return decoded(format, bits);
  }
  Format format;
  std::vector<std::byte> bytes;
};

struct Layout {
  int64_t channels, row_stride, pixels, samples;
  int64_t elements() const { return row_stride * pixels * samples; }
  Stored stored(const Held& held) const {
    return {held.bytes.data(), held.format, channels, row_stride, pixels};
  }
};

// Channels that fill no vector, rows with a gap, rows longer than a piece.
const Layout kLayouts[] = {
    {1, 1, 3, 4}, {7, 7, 3, 4}, {21, 24, 5, 4}, {67, 67, 2, 4}, {2100, 2103, 1, 4}};
constexpr int64_t kGhost = 2;

// One transform with all its parts, any of which a test may switch off.
struct Parts {
  explicit Parts(const Layout& l)
      : scale(draws(2, 2 * l.channels)),
        shift(draws(3, 2 * l.channels)),
        channel_factor(draws(4, l.samples * l.channels)),
        channel_addend(draws(11, l.samples * l.channels)),
        sample_factor(draws(5, l.samples)),
        a(draws(6, 2 * l.channels)),
        b(draws(7, 2 * l.channels)),
        c(draws(8, 2 * l.channels)),
        mean(draws(9, 2 * l.channels)) {}
  std::vector<float> scale, shift, channel_factor, channel_addend, sample_factor, a, b, c, mean;
};

double sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }
double activated(Activation activation, double z) {
  switch (activation) {
    case Activation::kNone:
      return z;
    case Activation::kRelu:
      return std::max(z, 0.0);
    case Activation::kRelu6:
      return std::clamp(z, 0.0, 6.0);
    case Activation::kSilu:
      return z * sigmoid(z);
    case Activation::kSigmoid:
      return sigmoid(z);
  }
  return z;
}
double slope(Activation activation, double z) {
  const double s = sigmoid(z);
  switch (activation) {
    case Activation::kNone:
      return 1.0;
    case Activation::kRelu:
      return z > 0.0 ? 1.0 : 0.0;
    case Activation::kRelu6:
      return z > 0.0 && z < 6.0 ? 1.0 : 0.0;
    case Activation::kSilu:
      return s * (1.0 + z * (1.0 - s));
    case Activation::kSigmoid:
      return s * (1.0 - s);
  }
  return 1.0;
}

// Which parts a case uses.
struct Use {
  bool norm, channel_factor, sample_factor;
  bool channel_addend = false;  // of gradients
};
constexpr Use kUses[] = {{false, false, false},    {true, false, false},
                         {false, true, false},     {false, false, true},
                         {true, true, true},       {false, false, false, true},
                         {true, true, false, true}};

// All narrow formats but one, of those that are decoded first.
bool from_half(Format format) { return format != Format::kF32 && format != Format::kF16e6; }

Source source_of(const Layout& layout, const Held& held, const Parts& parts, const Use& use,
                 Activation activation) {
  Source source;
  source.stored = layout.stored(held);
  source.activation = activation;
  source.of_half = from_half(source.stored.format);
  if (use.norm) source.norm = {parts.scale.data(), parts.shift.data(), layout.channels, kGhost};
  if (use.channel_factor) source.channel_factor = parts.channel_factor.data();
  if (use.sample_factor) source.sample_factor = parts.sample_factor.data();
  return source;
}

// Everything the definition needs of one element.
struct At {
  At(const Layout& l, const Parts& parts, const Use& use, int64_t sample, int64_t pixel, int64_t c)
      : index((sample * l.pixels + pixel) * l.row_stride + c) {
    const auto ghost = static_cast<size_t>(sample / kGhost * l.channels + c);
    if (use.norm) scale = double{parts.scale[ghost]}, shift = double{parts.shift[ghost]};
    a = double{parts.a[ghost]};
    b = double{parts.b[ghost]};
    constant = double{parts.c[ghost]};
    mean = double{parts.mean[ghost]};
    if (use.channel_factor)
      factor *= double{parts.channel_factor[static_cast<size_t>(sample * l.channels + c)]};
    if (use.channel_addend)
      addend = double{parts.channel_addend[static_cast<size_t>(sample * l.channels + c)]};
    if (use.sample_factor) factor *= double{parts.sample_factor[static_cast<size_t>(sample)]};
  }
  int64_t index;
  double scale = 1.0, shift = 0.0, factor = 1.0, addend = 0.0, a, b, constant, mean;
};

// Calls check(pixel, channel, sample, pixel of the sample) over a range.
template <class Check>
void for_each(const Layout& l, const RowRange& range, Check check) {
  for (int64_t i = 0; i < range.count; ++i) {
    const int64_t row = range.sample * l.pixels + range.pixel + i;
    for (int64_t c = 0; c < range.channels; ++c) check(i, c, row / l.pixels, row % l.pixels);
  }
}

// Whole samples, a part of one, inner channels, and with one transform for all, several samples.
std::vector<RowRange> ranges(const Layout& l, const Use& use) {
  std::vector<RowRange> all = {{1, 0, l.pixels, 0, l.channels},
                               {3, l.pixels - 1, 1, l.channels / 2, l.channels - l.channels / 2}};
  if (l.channels > 2) all.push_back({2, 0, l.pixels, 1, l.channels - 2});
  if (!use.channel_factor && !use.sample_factor && !use.channel_addend)
    all.push_back({2, l.pixels - 1, l.pixels + 1, 0, l.channels});  // inside a ghost batch
  return all;
}

class Rows : public simd::TargetTest {};

// A product, a fused multiply-add, an exponential of two ulps, a quotient, two factors: a dozen
// roundings of numbers that grow to no more than `most` on the way.
// Activations of numbers from half may be off by 2^-16 (simd::Accuracy).
double tolerance(double most, bool of_half) {
  return (12 * 0x1p-24 + (of_half ? 0x1p-16 : 0)) * std::max(most, 1.0);
}

TEST_P(Rows, load_what_the_definition_says) {
  for (const Layout& layout : kLayouts) {
    const Parts parts(layout);
    for (const Format format : kAllFormats) {
      const Held held(format, draws(1, layout.elements(), 3.0));
      for (const Activation activation : kActivations)
        for (const Use& use : kUses) {
          const Source source = source_of(layout, held, parts, use, activation);
          for (const RowRange& range : ranges(layout, use)) {
            const int64_t stride = range.channels + 3;
            std::vector<float> got(static_cast<size_t>(range.count * stride), 77.0f);
            load_rows(source, range, got.data(), stride);
            for_each(layout, range, [&](int64_t i, int64_t c, int64_t sample, int64_t pixel) {
              const At at(layout, parts, use, sample, pixel, range.channel + c);
              const double z = at.scale * double{held.at(at.index)} + at.shift;
              ASSERT_NEAR(double{got[static_cast<size_t>(i * stride + c)]},
                          activated(activation, z) * at.factor,
                          tolerance((std::abs(at.scale * double{held.at(at.index)}) + 2) *
                                        std::abs(at.factor),
                                    source.of_half))
                  << numeric::spec(format).name << " " << name(activation) << " channel " << c;
            });
            for (int64_t i = 0; i < range.count; ++i)
              for (int64_t c = range.channels; c < stride; ++c)
                ASSERT_EQ(got[static_cast<size_t>(i * stride + c)], 77.0f) << "wrote into the gap";
          }
        }
    }
  }
}

TEST_P(Rows, come_with_the_slopes_of_their_activation) {
  for (const Layout& layout : kLayouts) {
    const Parts parts(layout);
    for (const Format format : kAllFormats) {
      const Held held(format, draws(1, layout.elements(), 3.0));
      for (const Activation activation : kActivations)
        for (const Use& use : kUses) {
          const Source source = source_of(layout, held, parts, use, activation);
          if (source.channel_factor != nullptr || source.sample_factor != nullptr) continue;
          GradSource grad;
          grad.value = source;
          for (const RowRange& range : ranges(layout, use)) {
            const int64_t stride = range.channels + 3;
            std::vector<float> want(static_cast<size_t>(range.count * stride), 77.0f);
            std::vector<float> want_slopes = want, got = want, slopes = want;
            load_rows(source, range, want.data(), stride);
            for (int64_t i = 0; i < range.count; ++i)
              std::fill_n(want_slopes.begin() + i * stride, range.channels, 1.0f);
            differentiate_rows(grad, range, want_slopes.data(), stride);
            load_rows_with_slopes(source, range, got.data(), slopes.data(), stride);
            ASSERT_EQ(want, got) << numeric::spec(format).name << " " << name(activation);
            ASSERT_EQ(want_slopes, slopes) << numeric::spec(format).name << " " << name(activation);
          }
        }
    }
  }
}

// GY that is on its way to the tensor becomes the gradient as GY that lies there does.
TEST_P(Rows, differentiate_as_gradients_are_loaded) {
  for (const Layout& layout : kLayouts) {
    const Parts parts(layout);
    const Held grad(Format::kF32, draws(10, layout.elements()));
    for (const Format format : kAllFormats) {
      const Held value(format, draws(1, layout.elements(), 3.0));
      for (const Activation activation : kActivations)
        for (const Use& use : kUses) {
          GradSource source;
          source.grad = layout.stored(grad);
          source.value = source_of(layout, value, parts, use, activation);
          if (use.channel_addend) source.channel_addend = parts.channel_addend.data();
          for (const RowRange& range : ranges(layout, use)) {
            const int64_t stride = range.channels + 1;
            std::vector<float> want(static_cast<size_t>(range.count * stride), 77.0f), rows = want;
            load_grad_rows(source, range, want.data(), stride);
            for_each(layout, range, [&](int64_t i, int64_t c, int64_t sample, int64_t pixel) {
              const int64_t at = (sample * layout.pixels + pixel) * layout.row_stride;
              rows[static_cast<size_t>(i * stride + c)] = grad.at(at + range.channel + c);
            });
            differentiate_rows(source, range, rows.data(), stride);
            ASSERT_EQ(want, rows) << numeric::spec(format).name << " " << name(activation);
          }
        }
    }
  }
}

TEST_P(Rows, load_gradients_as_the_definition_says) {
  for (const Layout& layout : kLayouts) {
    const Parts parts(layout);
    for (const Format format : kAllFormats) {
      // The value in one format, its gradient in another.
      const Held value(format, draws(1, layout.elements(), 3.0));
      const Format other = format == Format::kF32 ? Format::kF32 : Format::kBf16;
      const Held grad(other, draws(10, layout.elements()));
      for (const Activation activation : kActivations)
        for (const Use& use : kUses)
          for (const bool frozen : {false, true}) {
            GradSource source;
            source.grad = layout.stored(grad);
            source.value = source_of(layout, value, parts, use, activation);
            if (use.channel_addend) source.channel_addend = parts.channel_addend.data();
            if (use.norm) source.a = parts.a.data();
            if (use.norm && !frozen) {
              source.b = parts.b.data();
              source.c = parts.c.data();
              source.mean = parts.mean.data();
            }
            for (const RowRange& range : ranges(layout, use)) {
              const int64_t stride = range.channels + 1;
              std::vector<float> got(static_cast<size_t>(range.count * stride), 77.0f);
              load_grad_rows(source, range, got.data(), stride);
              for_each(layout, range, [&](int64_t i, int64_t c, int64_t sample, int64_t pixel) {
                const At at(layout, parts, use, sample, pixel, range.channel + c);
                const double y = double{value.at(at.index)};
                const double z = at.scale * y + at.shift;
                const double g = double{grad.at(at.index)} * at.factor;
                double want = (g + at.addend) * slope(activation, z);
                double most = (std::abs(g) + std::abs(at.addend)) *
                              (2 + std::abs(at.scale * y) + std::abs(at.shift));
                if (use.norm) want *= at.a, most *= std::abs(at.a);
                if (use.norm && !frozen) {
                  want += at.b * (y - at.mean) + at.constant;
                  most +=
                      std::abs(at.b) * (std::abs(y) + std::abs(at.mean)) + std::abs(at.constant);
                }
                ASSERT_NEAR(double{got[static_cast<size_t>(i * stride + c)]}, want,
                            tolerance(most, source.value.of_half))
                    << numeric::spec(format).name << " " << name(activation) << " channel " << c;
              });
            }
          }
    }
  }
}

// Sides taken from one tensor make relu and relu6 linear in another.
TEST_P(Rows, given_gates_decide_whatever_the_numbers_say) {
  const Layout layout{21, 21, 5, 4};
  const Parts parts(layout);
  const Held here(Format::kF32, draws(1, layout.elements(), 6.0));
  const Held there(Format::kF32, draws(11, layout.elements(), 6.0));
  const Held grad(Format::kF32, draws(12, layout.elements()));
  const RowRange all{0, 0, layout.pixels, 0, layout.channels};
  const auto size = static_cast<size_t>(layout.pixels * layout.channels);
  for (const Activation activation : {Activation::kRelu, Activation::kRelu6})
    for (const Use& use : {Use{true, false, false}, Use{true, true, true}}) {
      Source source = source_of(layout, here, parts, use, activation);
      std::vector<Gate> gates(size);
      std::vector<float> room(size), own(size), gated(size), open(size), grads(size), got(size);
      load_gates(source, all, gates.data(), room.data());
      load_rows(source, all, own.data(), layout.channels);
      source.gates = gates.data();
      load_rows(source, all, gated.data(), layout.channels);
      for (size_t i = 0; i < size; ++i) ASSERT_FLOAT_EQ(own[i], gated[i]) << i;

      source.stored = layout.stored(there);
      load_rows(source, all, gated.data(), layout.channels);
      Source linear = source;
      linear.gates = nullptr;
      linear.activation = Activation::kNone;
      load_rows(linear, all, open.data(), layout.channels);
      GradSource passed;
      passed.grad = layout.stored(grad);
      passed.value = linear;
      load_grad_rows(passed, all, grads.data(), layout.channels);
      passed.value = source;
      load_grad_rows(passed, all, got.data(), layout.channels);
      for (size_t i = 0; i < size; ++i) {
        ASSERT_FLOAT_EQ(got[i], gates[i] == Gate::kOpen ? grads[i] : 0.0f) << i;
        if (gates[i] == Gate::kCapped) continue;
        ASSERT_FLOAT_EQ(gated[i], gates[i] == Gate::kOpen ? open[i] : 0.0f) << i;
      }
    }
}

TEST_P(Rows, derivatives_at_the_corners_are_pytorchs) {
  const std::vector<float> z = {0.0f,   -0.0f,   6.0f,     5.9999995f,
                                1e-30f, -1e-30f, INFINITY, -INFINITY};
  const std::vector<float> ones(z.size(), 1.0f);
  const auto n = static_cast<int64_t>(z.size());
  GradSource source;
  source.grad = {ones.data(), Format::kF32, n, n, 1};
  source.value.stored = {z.data(), Format::kF32, n, n, 1};
  std::vector<float> got(z.size());
  source.value.activation = Activation::kRelu;
  load_grad_rows(source, {0, 0, 1, 0, n}, got.data(), n);
  EXPECT_EQ(got, (std::vector<float>{0, 0, 1, 1, 1, 0, 1, 0}));
  source.value.activation = Activation::kRelu6;
  load_grad_rows(source, {0, 0, 1, 0, n}, got.data(), n);
  EXPECT_EQ(got, (std::vector<float>{0, 0, 0, 1, 1, 0, 0, 0}));
}

TEST_P(Rows, store_with_the_bits_of_the_scalar_codec_and_count_losses) {
  for (const Layout& layout : kLayouts)
    for (const Format format : kAllFormats)
      for (const bool accumulate : {false, true}) {
        // Some are beyond the 30 of fp8-143.
        std::vector<float> values = draws(11, 3 * layout.elements() + 3000, 40.0);
        values[0] = 1e-9f;
        const std::vector<float> before = draws(12, layout.elements());
        for (const RowRange& range : ranges(layout, {})) {
          Held held(format, before);
          const Held untouched = held;
          Sink sink;
          sink.data = held.bytes.data();
          sink.format = format;
          sink.channels = layout.channels;
          sink.row_stride = layout.row_stride;
          sink.pixels = layout.pixels;
          sink.accumulate = accumulate;
          const int64_t stride = range.channels + 2;
          const StoreCounts counts = store_rows(sink, range, values.data(), stride);
          Held want = untouched;
          StoreCounts lost;
          for_each(layout, range, [&](int64_t i, int64_t c, int64_t sample, int64_t pixel) {
            const int64_t to =
                (sample * layout.pixels + pixel) * layout.row_stride + range.channel + c;
            // The sum in fp32, then one rounding.
            float sum = values[static_cast<size_t>(i * stride + c)];
            if (accumulate) sum = untouched.at(to) + sum;
            want.put(static_cast<size_t>(to), code(format, sum));
            if (format == Format::kF32) return;
            const numeric::Encoded encoded = numeric::encode(format, sum);
            lost += {encoded.overflow ? 1u : 0u, encoded.underflow ? 1u : 0u};
          });
          EXPECT_EQ(held.bytes, want.bytes) << numeric::spec(format).name;
          EXPECT_EQ(counts.overflow, lost.overflow) << numeric::spec(format).name;
          EXPECT_EQ(counts.underflow, lost.underflow) << numeric::spec(format).name;
        }
      }
}

TRI_FOR_EACH_TARGET(Rows);

}  // namespace
}  // namespace tri::ops
