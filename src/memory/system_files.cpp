#include "memory/system_files.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>

namespace tri::memory {
namespace {

constexpr size_t kMostFileBytes = size_t{4} << 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

}  // namespace

Result<std::string> read_text(const std::filesystem::path& path) {
  const auto refused = [&] {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("cannot read {} ({})", path.native(), std::strerror(errno)));
  };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "re"),
                                                             std::fclose);
  if (file == nullptr) return refused();
  std::string text;
  char piece[4096];
  while (text.size() < kMostFileBytes) {
    const size_t got = std::fread(piece, 1, sizeof(piece), file.get());
    text.append(piece, got);
    if (got < sizeof(piece)) break;
  }
  if (std::ferror(file.get()) != 0) return refused();
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return parts;
}

std::optional<size_t> parse_number(std::string_view digits) {
  digits = trimmed(digits);
  size_t number = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stop != end || number >> 63 != 0) return std::nullopt;
  return number;
}

std::optional<size_t> kilobyte_field(std::string_view text, std::string_view name) {
  for (std::string_view line : split(text, '\n')) {
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line = trimmed(line.substr(name.size() + 1));
    if (!line.ends_with(" kB")) return std::nullopt;
    const std::optional<size_t> number = parse_number(line.substr(0, line.size() - 3));
    if (!number || *number >> 53 != 0) return std::nullopt;
    return *number << 10;
  }
  return std::nullopt;
}

}  // namespace tri::memory
