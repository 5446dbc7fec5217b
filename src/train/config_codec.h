#pragma once
// Room: train. How a value of each type of Config is read from text and written back. In: text, and
// the row's syntax and range. Out: a value, or what the user should give instead. Knows no option.
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "tri/config.h"

namespace tri::train {

struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;   // low itself is refused
  bool below_high = false;  // high itself is refused
};

struct Domain {
  std::string_view syntax;  // words apart by '|'; capitals stand for something to fill in
  Range range;
};

// The number of `word` among the words of a syntax.
std::optional<size_t> find_word(std::string_view syntax, std::string_view word);
std::string_view word_at(std::string_view syntax, size_t index);
// "give fused or after"
std::string give_one_of(std::string_view syntax);

// read() returns what to give instead, and nothing if the text is fine.
std::string read(std::string_view text, const Domain& domain, bool& value);
std::string read(std::string_view text, const Domain& domain, int64_t& value);
std::string read(std::string_view text, const Domain& domain, double& value);
std::string read(std::string_view text, const Domain& domain, std::string& value);
std::string read(std::string_view text, const Domain& domain, Precision& value);
std::string read(std::string_view text, const Domain& domain, SaveInterval& value);

std::string text_of(bool value, const Domain& domain);
std::string text_of(int64_t value, const Domain& domain);
std::string text_of(double value, const Domain& domain);
std::string text_of(const std::string& value, const Domain& domain);
std::string text_of(const Precision& value, const Domain& domain);
std::string text_of(const SaveInterval& value, const Domain& domain);

template <class Enum>
requires std::is_enum_v<Enum> std::string read(std::string_view text, const Domain& domain,
                                               Enum& value) {
  const std::optional<size_t> index = find_word(domain.syntax, text);
  if (!index) return give_one_of(domain.syntax);
  value = static_cast<Enum>(*index);
  return {};
}
template <class Enum>
requires std::is_enum_v<Enum> std::string text_of(Enum value, const Domain& domain) {
  return std::string(word_at(domain.syntax, static_cast<size_t>(value)));
}

// No value is `auto` or `off`, whichever the syntax has.
inline std::string_view word_for_none(std::string_view syntax) {
  return find_word(syntax, "auto") ? "auto" : "off";
}
template <class T>
std::string read(std::string_view text, const Domain& domain, std::optional<T>& value) {
  const std::string_view none = word_for_none(domain.syntax);
  value.reset();
  if (text == none) return {};
  const std::string refusal = read(text, domain, value.emplace());
  return refusal.empty() ? refusal : refusal + " or " + std::string(none);
}
template <class T>
std::string text_of(const std::optional<T>& value, const Domain& domain) {
  return value ? text_of(*value, domain) : std::string(word_for_none(domain.syntax));
}

}  // namespace tri::train
