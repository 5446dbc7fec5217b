#pragma once
// Room: memory, inside. Small text files of the kernel and the numbers in them. Nothing here fails
// but by saying why: the caller turns that into "unknown".
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tri/result.h"

namespace tri::memory {

// The whole file, up to 4 MiB. Messages name the path as the process sees it.
Result<std::string> read_text(const std::filesystem::path& path);

std::vector<std::string_view> split(std::string_view text, char separator);

// A run of digits and nothing else, below 2^63.
std::optional<size_t> parse_number(std::string_view digits);

// The value of a line like "VmRSS:     1234 kB", in bytes.
std::optional<size_t> kilobyte_field(std::string_view text, std::string_view name);

}  // namespace tri::memory
