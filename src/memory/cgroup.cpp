#include "memory/cgroup.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "memory/system_files.h"

namespace tri::memory {
namespace {

namespace fs = std::filesystem;

// v1 has no word for "no limit": it shows the largest multiple of the page size below 2^63.
constexpr size_t kUnlimitedV1 = size_t{1} << 62;

Limit unknown(Limit::Source source, std::string why) {
  return {source, Limit::State::kUnknown, 0, 0, std::move(why)};
}

bool lists(std::string_view words, std::string_view word) {
  const auto parts = split(words, ',');
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

// The group of this process in the hierarchy: lines are "id:controllers:path", v2 is "0::path".
std::optional<std::string> own_group(std::string_view text, bool v2) {
  for (const std::string_view line : split(text, '\n')) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool wanted = v2 ? line.starts_with("0::") : lists(controllers, "memory");
    if (wanted) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

// mountinfo writes blanks and backslashes as three octal digits.
std::string unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto octal = [&](size_t k) { return i + k < text.size() && (text[i + k] & ~7) == '0'; };
    if (text[i] == '\\' && octal(1) && octal(2) && octal(3)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

struct Mount {
  std::string top;    // the group that the mount shows
  std::string point;  // where it shows it
};

// Lines are "id parent device top point options... - type source options".
std::optional<Mount> find_mount(std::string_view text, bool v2) {
  for (const std::string_view line : split(text, '\n')) {
    const size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto head = split(line.substr(0, dash), ' '), tail = split(line.substr(dash + 3), ' ');
    if (head.size() < 5 || tail.size() < 3) continue;
    const bool wanted = v2 ? tail[0] == "cgroup2" : tail[0] == "cgroup" && lists(tail[2], "memory");
    if (wanted) return Mount{unescaped(head[3]), unescaped(head[4])};
  }
  return std::nullopt;
}

// The group's folder below the mount point. A container often sees its group under another name
// than the mount shows; then the mount point itself is its own.
fs::path below_mount(const std::string& group, const std::string& top) {
  fs::path inside = fs::path(group).lexically_relative(top);
  if (inside.empty() || *inside.begin() == "..") return ".";
  return inside;
}

// One more folder of the hierarchy: keeps the tighter of `least` and what `file` says.
void tighten(Limit& least, const fs::path& file, const fs::path& shown) {
  std::error_code missing;
  if (!fs::exists(file, missing) && !missing) return;  // the root group, or a group without limits
  const Result<std::string> text = read_text(file);
  if (!text) {
    least = unknown(least.source, text.error().message);
    return;
  }
  const std::string_view word = std::string_view(*text).substr(0, text->find('\n'));
  const std::optional<size_t> bytes = parse_number(word);
  if (!bytes && word != "max" && word != "-1") {
    least = unknown(least.source, fmt::format("{} says \"{:.40}\", which is no number of bytes",
                                              shown.native(), word));
    return;
  }
  if (!bytes || *bytes >= kUnlimitedV1) return;
  if (least.state == Limit::State::kBytes && least.bytes <= *bytes) return;
  least.state = Limit::State::kBytes;
  least.bytes = *bytes;
  least.comment = shown.native();
}

}  // namespace

Limit cgroup_limit(const fs::path& root, Limit::Source source) {
  const bool v2 = source != Limit::Source::kCgroupV1;
  const char* const file = source == Limit::Source::kCgroupMax    ? "memory.max"
                           : source == Limit::Source::kCgroupHigh ? "memory.high"
                                                                  : "memory.limit_in_bytes";
  const Result<std::string> groups = read_text(root / "proc/self/cgroup");
  if (!groups) return unknown(source, groups.error().message);
  const Result<std::string> mounts = read_text(root / "proc/self/mountinfo");
  if (!mounts) return unknown(source, mounts.error().message);

  Limit least{source, Limit::State::kUnlimited, 0, 0, "no control group sets it"};
  const std::optional<std::string> group = own_group(*groups, v2);
  const std::optional<Mount> mount = find_mount(*mounts, v2);
  if (!group || !mount) return least;
  const fs::path point = fs::path(mount->point).relative_path();
  for (fs::path inside = below_mount(*group, mount->top);; inside = inside.parent_path()) {
    const fs::path shown = ("/" / point / inside / file).lexically_normal();
    tighten(least, root / shown.relative_path(), shown);
    if (least.state == Limit::State::kUnknown || inside.empty() || inside == ".") return least;
  }
}

}  // namespace tri::memory
