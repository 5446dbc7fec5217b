#include "train/config_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.h"

namespace tri::train {
namespace {

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool holds(const Range& range, double value) {
  return (range.above_low ? value > range.low : value >= range.low) &&
         (range.below_high ? value < range.high : value <= range.high);
}

// "give a whole number of at least 1"
std::string give_number(std::string_view kind, const Range& range) {
  std::string text = fmt::format("give {}", kind);
  if (std::isfinite(range.low)) {
    text += fmt::format(" {} {}", range.above_low ? "above" : "of at least", range.low);
  }
  if (std::isfinite(range.high)) {
    text += std::isfinite(range.low) ? " and" : "";
    text += fmt::format(" {} {}", range.below_high ? "below" : "at most", range.high);
  }
  return text;
}

// A list without a word in capitals leaves nothing to fill in.
bool is_closed(std::string_view syntax) {
  return syntax.find('|') != std::string_view::npos &&
         std::ranges::none_of(syntax, [](char c) { return c >= 'A' && c <= 'Z'; });
}

// Well-formed UTF-8 (Unicode 15, table 3-7) without control characters: what a TOML string holds.
bool is_plain_text(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const uint8_t lead = byte(i);
    if (lead < 0x20 || lead == 0x7f) return false;
    if (lead < 0x80) {
      ++i;
      continue;
    }
    if (lead < 0xc2 || lead > 0xf4) return false;
    const size_t length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (text.size() - i < length) return false;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    const uint8_t second = byte(i + 1);  // overlong forms, surrogates, beyond U+10FFFF
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      return false;
    }
    i += length;
  }
  return true;
}

constexpr std::string_view kAssign = "assign:";

}  // namespace

std::optional<size_t> find_word(std::string_view syntax, std::string_view word) {
  for (size_t index = 0;; ++index) {
    const size_t end = syntax.find('|');
    if (syntax.substr(0, end) == word) return index;
    if (end == std::string_view::npos) return std::nullopt;
    syntax.remove_prefix(end + 1);
  }
}

std::string_view word_at(std::string_view syntax, size_t index) {
  for (; index > 0; --index) {
    TRI_CHECK(syntax.find('|') != std::string_view::npos, "{} words are missing", index);
    syntax.remove_prefix(syntax.find('|') + 1);
  }
  return syntax.substr(0, syntax.find('|'));
}

std::string give_one_of(std::string_view syntax) {
  std::string text = "give ";
  size_t end = syntax.find('|');
  while (end != std::string_view::npos) {
    text += syntax.substr(0, end);
    syntax.remove_prefix(end + 1);
    end = syntax.find('|');
    text += end == std::string_view::npos ? " or " : ", ";
  }
  return text += syntax;
}

std::string read(std::string_view text, const Domain& /*domain*/, bool& value) {
  value = text == "true" || text == "on";
  return value || text == "false" || text == "off" ? "" : "give on or off";
}

std::string read(std::string_view text, const Domain& domain, int64_t& value) {
  const auto number = parse_number<int64_t>(text);
  if (!number || !holds(domain.range, static_cast<double>(*number))) {
    return give_number("a whole number", domain.range);
  }
  value = *number;
  return {};
}

std::string read(std::string_view text, const Domain& domain, double& value) {
  const auto number = parse_number<double>(text);
  if (!number || !std::isfinite(*number) || !holds(domain.range, *number)) {
    return give_number("a number", domain.range);
  }
  value = *number;
  return {};
}

std::string read(std::string_view text, const Domain& domain, std::string& value) {
  if (is_closed(domain.syntax) && !find_word(domain.syntax, text)) {
    return give_one_of(domain.syntax);
  }
  if (!is_plain_text(text)) return "give UTF-8 text without control characters";
  value = text;
  return {};
}

std::string read(std::string_view text, const Domain& domain, Precision& value) {
  if (text.starts_with(kAssign)) {
    const auto share = parse_number<double>(text.substr(kAssign.size()));
    if (!share || !(*share >= 0 && *share <= 1)) {
      return "give assign:R with R, the share in low precision, from 0 to 1";
    }
    value = {Precision::Policy::kAssign, *share};
    return {};
  }
  const std::optional<size_t> index = find_word(domain.syntax, text);
  if (!index || text == "assign:R") return give_one_of(domain.syntax);
  value = {static_cast<Precision::Policy>(*index), 0};
  return {};
}

std::string read(std::string_view text, const Domain& /*domain*/, SaveInterval& value) {
  constexpr double kMostMinutes = 1e6;
  if (text.ends_with('m')) {
    const auto minutes = parse_number<double>(text.substr(0, text.size() - 1));
    if (minutes && *minutes > 0 && *minutes <= kMostMinutes) {
      value = {0, *minutes};
      return {};
    }
  } else if (const auto steps = parse_number<int64_t>(text); steps && *steps >= 1) {
    value = {*steps, 0};
    return {};
  }
  return "give a number of steps such as 500 or of minutes such as 5m";
}

std::string text_of(bool value, const Domain& domain) {
  if (domain.syntax.empty()) return value ? "true" : "false";
  return value ? "on" : "off";
}
std::string text_of(int64_t value, const Domain& /*domain*/) { return fmt::to_string(value); }
// The shortest text that reads back to the same bits.
std::string text_of(double value, const Domain& /*domain*/) { return fmt::format("{}", value); }
std::string text_of(const std::string& value, const Domain& /*domain*/) { return value; }

std::string text_of(const Precision& value, const Domain& domain) {
  if (value.policy == Precision::Policy::kAssign) {
    return fmt::format("{}{}", kAssign, value.low_share);
  }
  return std::string(word_at(domain.syntax, static_cast<size_t>(value.policy)));
}

std::string text_of(const SaveInterval& value, const Domain& /*domain*/) {
  return value.steps > 0 ? fmt::to_string(value.steps) : fmt::format("{}m", value.minutes);
}

}  // namespace tri::train
