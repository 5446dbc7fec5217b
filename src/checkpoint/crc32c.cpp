#include "checkpoint/crc32c.h"

#include <cstring>

#if defined(__SSE4_2__)
#include <nmmintrin.h>
#else
#include <array>
#endif

namespace tri::checkpoint {

#if defined(__SSE4_2__)

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) {
  uint64_t wide = static_cast<uint32_t>(~crc);
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  uint32_t narrow = static_cast<uint32_t>(wide);
  for (; i < bytes.size(); ++i) narrow = _mm_crc32_u8(narrow, static_cast<uint8_t>(bytes[i]));
  return ~narrow;
}

#else

uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      table[i] = i;
      for (int bit = 0; bit < 8; ++bit) {
        table[i] = (table[i] >> 1) ^ ((table[i] & 1) != 0 ? 0x82f63b78U : 0U);
      }
    }
    return table;
  }();
  crc = ~crc;
  for (const std::byte byte : bytes) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(byte)) & 0xff];
  }
  return ~crc;
}

#endif

}  // namespace tri::checkpoint
