#pragma once
// Room: base. Sizes as people write them. In: text. Out: a Size, or bytes as text. Does not know
// how much memory there is: what a share or `auto` comes to is decided by whoever asked.
#include <cstdint>
#include <string>
#include <string_view>

#include "tri/result.h"

namespace tri::base {

struct Size {
  enum class Kind { kBytes, kFraction, kAuto };
  Kind kind = Kind::kAuto;
  uint64_t bytes = 0;   // kBytes: > 0
  double fraction = 0;  // kFraction: in (0, 1]

  bool operator==(const Size&) const = default;
};

// "256MiB", "1.5G", "512k", "1000000" (bytes), "60%", "auto"; case does not matter, one space may
// stand before the unit. K, M, G, T and KiB, MiB, GiB, TiB are powers of 1024; KB, MB, GB, TB are
// powers of 1000. Parts of a byte are dropped.
Result<Size> parse_size(std::string_view text);

// "512 B", "96.0 MiB": powers of 1024, one decimal, rounded to nearest.
std::string format_bytes(uint64_t bytes);

}  // namespace tri::base
