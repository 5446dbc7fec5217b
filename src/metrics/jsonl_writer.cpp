#include "metrics/jsonl_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace tri::metrics {
namespace {

Unexpected refuse(std::string_view action, const std::filesystem::path& path, int error) {
  return unexpected(ErrorCode::kFailed,
                    fmt::format("cannot {} metrics file '{}': {}; check the path, its permissions "
                                "and the free space",
                                action, path.string(), std::strerror(error)));
}

Result<int> open_file(const std::filesystem::path& path, int flags) {
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | flags, 0666);
  if (file < 0) return refuse("open", path, errno);
  return file;
}

bool is_event_up_to(const std::string& line, uint64_t last_step) {
  const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) return false;
  const auto step = event.find("step");
  return step != event.end() && step->is_number_unsigned() && step->get<uint64_t>() <= last_step;
}

// The end of the last complete event of a step <= last_step.
uint64_t bytes_to_keep(std::istream& file, uint64_t last_step) {
  uint64_t end = 0, keep = 0;
  // getline meets the end of the file only in a line without an end.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    end += line.size() + 1;
    if (is_event_up_to(line, last_step)) keep = end;
  }
  return keep;
}

}  // namespace

Result<JsonlWriter> JsonlWriter::create(const std::filesystem::path& path) {
  TRI_ASSIGN(const int file, open_file(path, O_TRUNC));
  return JsonlWriter(path, file);
}

Result<JsonlWriter> JsonlWriter::resume(const std::filesystem::path& path, uint64_t last_step) {
  TRI_ASSIGN(const int file, open_file(path, 0));
  JsonlWriter writer(path, file);
  std::ifstream old(path, std::ios::binary);
  if (!old) return refuse("read", path, errno);
  const uint64_t keep = bytes_to_keep(old, last_step);
  if (old.bad()) return refuse("read", path, EIO);
  if (::ftruncate(file, static_cast<off_t>(keep)) != 0) return refuse("shorten", path, errno);
  return writer;
}

JsonlWriter::JsonlWriter(JsonlWriter&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

JsonlWriter& JsonlWriter::operator=(JsonlWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

JsonlWriter::~JsonlWriter() {
  if (file_ >= 0) ::close(file_);
}

Result<void> JsonlWriter::write(const Event& event) {
  const std::string line = to_json(event) + '\n';
  const off_t start = ::lseek(file_, 0, SEEK_END);
  for (size_t done = 0; done < line.size();) {
    const ssize_t count = ::write(file_, line.data() + done, line.size() - done);
    if (count >= 0) {
      done += static_cast<size_t>(count);
    } else if (errno != EINTR) {
      const int error = errno;
      if (done > 0 && ::ftruncate(file_, start) != 0) return refuse("repair", path_, errno);
      return refuse("write to", path_, error);
    }
  }
  return {};
}

}  // namespace tri::metrics
