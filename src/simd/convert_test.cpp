// Every format, every runnable target, against the scalar reference bit by bit.
#include "simd/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "numeric/round.h"
#include "simd/target_fixture.h"

namespace tri::simd {
namespace {

using numeric::Format;

uint32_t code_at(Format format, const void* base, size_t i) {
  uint32_t code = 0;
  const size_t bytes = numeric::storage_bytes(format);
  std::memcpy(&code, static_cast<const unsigned char*>(base) + i * bytes, bytes);
  return code;
}

// All signs and exponents, with mantissas around every rounding boundary of every format.
std::vector<float> dense_samples() {
  std::vector<uint32_t> mantissas;
  for (int bit = 0; bit <= 23; ++bit) {
    for (const uint32_t around : {1u << bit, 3u << bit, 5u << bit, 0x800000u - (1u << bit)}) {
      for (const uint32_t m : {around - 1, around, around + 1}) mantissas.push_back(m & 0x7fffff);
    }
  }
  std::vector<float> samples;
  for (uint32_t top = 0; top < 512; ++top) {
    for (const uint32_t m : mantissas) samples.push_back(std::bit_cast<float>(top << 23 | m));
  }
  return samples;
}

class ConvertTest : public TargetTest {};
TRI_FOR_EACH_TARGET(ConvertTest);

template <class Fn>
void for_each_format(Fn fn) {
  for (size_t f = 0; f < numeric::kFormats; ++f) {
    SCOPED_TRACE(numeric::kSpecs[f].name);
    fn(static_cast<Format>(f));
  }
}

TEST_P(ConvertTest, DecodesEveryCode) {
  for_each_format([](Format format) {
    const size_t bytes = numeric::storage_bytes(format);
    const size_t n = bytes == 1 ? 256 : 65536;
    std::vector<uint32_t> codes(n);
    std::vector<unsigned char> src(n * bytes);
    for (size_t i = 0; i < n; ++i) {
      codes[i] = static_cast<uint32_t>(i) * (bytes == 4 ? 65537u : 1u);
      std::memcpy(src.data() + i * bytes, &codes[i], bytes);
    }
    std::vector<float> dst(n);
    decode(format, src.data(), dst.data(), n);
    for (size_t i = 0; i < n; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(dst[i]),
                std::bit_cast<uint32_t>(numeric::decode(format, codes[i])))
          << "code " << codes[i];
    }
  });
}

TEST_P(ConvertTest, EncodesAsTheReference) {
  const std::vector<float> src = dense_samples();
  for_each_format([&](Format format) {
    std::vector<unsigned char> dst(src.size() * numeric::storage_bytes(format));
    const ConvertCounts counts = encode(format, src.data(), dst.data(), src.size());
    ConvertCounts expected;
    for (size_t i = 0; i < src.size(); ++i) {
      const numeric::Encoded want = numeric::encode(format, src[i]);
      expected.overflow += want.overflow;
      expected.underflow += want.underflow;
      ASSERT_EQ(code_at(format, dst.data(), i), want.bits)
          << std::hex << std::bit_cast<uint32_t>(src[i]);
    }
    EXPECT_EQ(counts, expected);
  });
}

TEST_P(ConvertTest, RoundsAsThroughStorage) {
  const std::vector<float> src = dense_samples();
  for_each_format([&](Format format) {
    std::vector<float> dst(src.size());
    uint64_t overflow = round_to(format, src.data(), dst.data(), src.size());
    for (size_t i = 0; i < src.size(); ++i) {
      const numeric::Encoded encoded = numeric::encode(format, src[i]);
      overflow -= encoded.overflow ? 1 : 0;
      const float want = numeric::decode(format, encoded.bits);
      ASSERT_EQ(std::bit_cast<uint32_t>(dst[i]), std::bit_cast<uint32_t>(want))
          << std::hex << std::bit_cast<uint32_t>(src[i]);
    }
    EXPECT_EQ(overflow, 0u);
  });
}

// Short pieces, so that most of them hold no loss, as in training, and are stored uncounted.
TEST_P(ConvertTest, ScalesOnTheWay) {
  const std::vector<float> all = dense_samples();
  constexpr size_t kPiece = 300;
  for (const float scale : {1.0f, 0x1p-9f, 0x1p13f}) {
    for_each_format([&](Format format) {
      for (size_t first = 0; first + kPiece <= all.size(); first += 7 * kPiece) {
        const float* src = all.data() + first;
        std::vector<unsigned char> dst(kPiece * numeric::storage_bytes(format));
        const ScaledCounts counts =
            encode_rows(format, src, kPiece, dst.data(), kPiece, 1, kPiece, scale);
        std::vector<float> back(kPiece);
        decode_scaled(format, dst.data(), back.data(), kPiece, 1 / scale);
        ConvertCounts expected;
        float most = 0;
        for (size_t i = 0; i < kPiece; ++i) {
          // A product would make a signalling NaN quiet.
          const float scaled = scale == 1.0f ? src[i] : src[i] * scale;
          const numeric::Encoded want = numeric::encode(format, scaled);
          expected.overflow += want.overflow;
          expected.underflow += want.underflow;
          if (std::abs(src[i]) > most) most = std::abs(src[i]);
          ASSERT_EQ(code_at(format, dst.data(), i), want.bits) << src[i];
          const float decoded = numeric::decode(format, want.bits) / scale;
          ASSERT_TRUE(back[i] == decoded || (std::isnan(back[i]) && std::isnan(decoded)));
        }
        ASSERT_EQ(counts.lost, expected) << first;
        ASSERT_EQ(counts.max_abs, most) << first;
      }
    });
  }
}

TEST_P(ConvertTest, RowsAreThoseOfSingleCalls) {
  const std::vector<float> all = dense_samples();
  constexpr size_t kRows = 90, kFrom = 24, kTo = 21;
  for_each_format([&](Format format) {
    const size_t bytes = numeric::storage_bytes(format);
    for (const size_t n : {1, 8, 16, 19}) {
      std::vector<unsigned char> got(kRows * kTo * bytes), want(kRows * kTo * bytes);
      const ScaledCounts counts =
          encode_rows(format, all.data(), kFrom, got.data(), kTo, kRows, n, 1.0f);
      ConvertCounts expected;
      for (size_t row = 0; row < kRows; ++row)
        expected += encode(format, all.data() + row * kFrom, want.data() + row * kTo * bytes, n);
      EXPECT_EQ(got, want);
      EXPECT_EQ(counts.lost, expected);
    }
  });
}

TEST_P(ConvertTest, EncodesStochasticallyAsTheReference) {
  const std::vector<float> src = dense_samples();
  const numeric::NoiseKey key = numeric::noise_key(7, 11, 13);
  constexpr uint32_t kFirst = 0xfff00000;
  for_each_format([&](Format format) {
    std::vector<unsigned char> dst(src.size() * numeric::storage_bytes(format));
    const ConvertCounts counts =
        encode_stochastic(format, src.data(), dst.data(), src.size(), key, kFirst);
    ConvertCounts expected;
    for (size_t i = 0; i < src.size(); ++i) {
      const uint32_t random = numeric::noise(key, kFirst + static_cast<uint32_t>(i));
      const numeric::Encoded want = numeric::encode_stochastic(format, src[i], random);
      expected.overflow += want.overflow;
      expected.underflow += want.underflow;
      ASSERT_EQ(code_at(format, dst.data(), i), want.bits)
          << std::hex << std::bit_cast<uint32_t>(src[i]) << " random " << random;
    }
    EXPECT_EQ(counts, expected);
  });
}

// Every length around the vector widths, at every offset, with guards on both sides.
TEST_P(ConvertTest, TouchesNothingOutsideItsArrays) {
  constexpr unsigned char kGuard = 0xa5;
  constexpr size_t kMost = 35;
  for_each_format([&](Format format) {
    const size_t bytes = numeric::storage_bytes(format);
    for (size_t n = 0; n <= kMost; ++n) {
      for (size_t offset = 0; offset < 3; ++offset) {
        // Exact-size heap blocks, so that the sanitizer sees reads beyond them.
        std::vector<float> src(n, 1.5f);
        std::vector<uint32_t> room((kMost + 8) * bytes / 4 + 2);
        auto* raw = reinterpret_cast<unsigned char*>(room.data());
        std::memset(raw, kGuard, room.size() * 4);
        EXPECT_EQ(encode(format, src.data(), raw + offset * bytes, n), ConvertCounts());
        for (size_t i = 0; i < room.size() * 4; ++i) {
          const bool inside = i >= offset * bytes && i < (offset + n) * bytes;
          ASSERT_TRUE(inside || raw[i] == kGuard) << "byte " << i << " of " << n;
        }
        std::vector<unsigned char> exact(raw + offset * bytes, raw + (offset + n) * bytes);
        std::vector<float> back(n + 1, -1.0f);
        decode(format, exact.data(), back.data(), n);
        for (size_t i = 0; i < n; ++i) ASSERT_EQ(back[i], 1.5f);
        ASSERT_EQ(back[n], -1.0f);
      }
    }
  });
}

}  // namespace
}  // namespace tri::simd
