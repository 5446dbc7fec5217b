#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

namespace tri::checkpoint {
namespace {

constexpr int kVersion = 1;

Unexpected wrong(std::string why) { return unexpected(ErrorCode::kFailed, std::move(why)); }

std::optional<uint32_t> parse_hex(const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 8 || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

std::string encode_manifest(const std::vector<FileRecord>& files) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FileRecord& file : files) {
    list.push_back({{"name", file.name},
                    {"bytes", file.bytes},
                    {"crc32c", fmt::format("{:08x}", file.crc32c)}});
  }
  return nlohmann::ordered_json{{"version", kVersion}, {"files", list}}.dump(1) + "\n";
}

Result<std::vector<FileRecord>> parse_manifest(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("version") || !json.contains("files") ||
      !json["files"].is_array()) {
    return wrong("it is no manifest");
  }
  if (json["version"] != kVersion) {
    return wrong(
        fmt::format("its version is {}, this program reads {}", json["version"].dump(), kVersion));
  }
  std::vector<FileRecord> files;
  for (const auto& entry : json["files"]) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("bytes") || !entry["bytes"].is_number_unsigned() ||
        !entry.contains("crc32c") || !entry["crc32c"].is_string()) {
      return wrong("an entry lacks its name, bytes or crc32c");
    }
    FileRecord file{entry["name"], entry["bytes"], 0};
    const std::optional<uint32_t> crc = parse_hex(entry["crc32c"]);
    if (!crc) return wrong(fmt::format("'{}' has no valid crc32c", file.name));
    if (file.name.empty() || file.name.find('/') != std::string::npos || file.name == "..") {
      return wrong(fmt::format("'{}' is no file name", file.name));
    }
    file.crc32c = *crc;
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace tri::checkpoint
