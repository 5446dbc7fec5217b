#pragma once
// Room: checkpoint. CRC-32C (Castagnoli; RFC 3720), the checksum of the manifest.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tri::checkpoint {

// Continues `crc`, which is 0 at the start: crc32c(crc32c(0, a), b) is that of a followed by b.
uint32_t crc32c(uint32_t crc, std::span<const std::byte> bytes);

}  // namespace tri::checkpoint
