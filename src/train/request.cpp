#include "train/request.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "train/replace_file.h"
#include "train/run_directory.h"
#include "train/summary.h"
#include "tri/run_request.h"

namespace tri {
namespace train {
namespace {

using Json = nlohmann::ordered_json;

std::optional<Request> read_request(const std::string& path) {
  const Result<std::string> text = read_small_file(path);
  if (!text) return std::nullopt;
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("memory") || !json.contains("serial")) return {};
  if (!json["memory"].is_string() || !json["serial"].is_number_unsigned()) return {};
  Request request{json["memory"].get<std::string>(), json["serial"].get<uint64_t>()};
  if (!base::parse_size(request.memory)) return std::nullopt;
  return request;
}

}  // namespace

std::optional<Request> RequestReader::poll() {
  struct stat found = {};
  if (::stat(path_.c_str(), &found) != 0) return std::nullopt;
  constexpr int64_t kSecond = 1'000'000'000;
  const Identity identity = {found.st_ino, found.st_size,
                             found.st_mtim.tv_sec * kSecond + found.st_mtim.tv_nsec};
  if (identity == seen_) return std::nullopt;
  seen_ = identity;
  std::optional<Request> request = read_request(path_);
  if (!request || request->serial <= last_serial_) return std::nullopt;
  last_serial_ = request->serial;
  return request;
}

}  // namespace train

Result<uint64_t> request_memory(const std::string& directory, const std::string& memory) {
  using namespace tri::train;
  const auto invalid = [](std::string message) {
    return unexpected(ErrorCode::kInvalid, std::move(message));
  };
  if (const auto size = base::parse_size(memory); !size) {
    return invalid(fmt::format("memory={}: {}", memory, size.error().message));
  }
  const RunDirectory run = {directory};
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(run.summary(), ignored)) {
    return invalid(
        fmt::format("'{}' is not the directory of a run: it has no summary.json; give "
                    "the one that train named",
                    directory));
  }
  TRI_ASSIGN(const Summary summary, read_summary(run.summary()));
  if (summary.status != Status::kRunning || !RunLock::is_held(run)) {
    const std::string why = summary.status == Status::kRunning
                                ? "its process is gone"
                                : fmt::format("its status is {}", name(summary.status));
    return invalid(
        fmt::format("the run in '{}' is not in progress ({}); continue it with 'triaccel train "
                    "--resume {} --memory {}' or start another",
                    directory, why, directory, memory));
  }
  const std::optional<Request> before = read_request(run.control());
  const uint64_t serial = (before ? before->serial : 0) + 1;
  const Json json = {{"memory", memory}, {"serial", serial}};
  TRI_TRY(replace_file(run.control(), json.dump() + "\n"));
  return serial;
}

}  // namespace tri
