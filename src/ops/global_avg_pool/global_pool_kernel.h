#pragma once
// Room: ops. Sums over pixels, per channel, on fp32 rows.
#include <cstdint>

namespace tri::ops {

// sums[c] += sum over `count` pixels, `pixel` floats apart: one chain of its own per channel.
void add_pixels(const float* pixels, int64_t pixel, int64_t count, int64_t channels,
                float* sums) noexcept;

}  // namespace tri::ops
