#include "base/bytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <system_error>

namespace tri::base {
namespace {

Unexpected refuse(std::string_view text, std::string_view why) {
  return unexpected(
      ErrorCode::kInvalid,
      fmt::format("size '{}' {}; write a size like 256MiB, 1G, 60% or auto", text, why));
}

// Bytes per unit; the unit in lower case.
std::optional<uint64_t> unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(unit.front());
  if (power == kPrefixes.npos) return std::nullopt;
  const std::string_view rest = unit.substr(1);
  const bool decimal = rest == "b";
  if (!decimal && !rest.empty() && rest != "ib") return std::nullopt;
  uint64_t bytes = 1;
  for (size_t i = 0; i <= power; ++i) bytes *= decimal ? 1000 : 1024;
  return bytes;
}

}  // namespace

Result<Size> parse_size(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (lower == "auto") return Size{};

  const size_t number_length = std::min(lower.find_first_not_of("0123456789."), lower.size());
  const char* const begin = lower.data();
  const char* const end = begin + number_length;
  std::string_view unit = std::string_view(lower).substr(number_length);
  if (unit.size() > 1 && unit.front() == ' ') unit.remove_prefix(1);

  double number = 0;
  const auto [stop, status] = std::from_chars(begin, end, number, std::chars_format::fixed);
  if (status == std::errc::invalid_argument || stop != end) return refuse(text, "is not a number");
  if (status != std::errc()) return refuse(text, "is out of range");
  const std::optional<uint64_t> scale = unit_bytes(unit);
  if (!scale && unit != "%") return refuse(text, "has an unknown unit");
  if (number == 0) return refuse(text, "is zero");

  if (unit == "%") {
    if (number > 100) return refuse(text, "is more than the whole");
    return Size{.kind = Size::Kind::kFraction, .fraction = number / 100};
  }
  // Whole numbers stay exact; a double would round them above 2^53.
  uint64_t whole = 0;
  const auto [whole_stop, whole_status] = std::from_chars(begin, end, whole);
  uint64_t bytes = 0;
  bool too_large = false;
  if (whole_stop == end) {
    too_large = whole_status != std::errc() || __builtin_mul_overflow(whole, *scale, &bytes);
  } else {
    const double scaled = std::floor(number * static_cast<double>(*scale));
    too_large = scaled >= 0x1p64;
    if (!too_large) bytes = static_cast<uint64_t>(scaled);
  }
  if (too_large) return refuse(text, "is more than 64 bits can count");
  if (bytes == 0) return refuse(text, "is less than one byte");
  return Size{.kind = Size::Kind::kBytes, .bytes = bytes};
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would print as 1024.0.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace tri::base
