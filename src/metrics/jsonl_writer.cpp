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

// What an event is to a run that continues behind `last_step`.
enum class Standing : uint8_t {
  kNone,    // of a later step, or no event
  kBefore,  // of a step up to it, perhaps made behind the checkpoint
  kSeal,    // the checkpoint itself: all before it is part of the run
  kAfter,   // may stand behind it
};

Standing standing(const std::string& line, uint64_t last_step) {
  const auto event = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!event.is_object()) return Standing::kNone;
  const auto step = event.find("step");
  if (step == event.end() || !step->is_number_unsigned()) return Standing::kNone;
  if (step->get<uint64_t>() > last_step) return Standing::kNone;
  const auto text = [&event](const char* key) {
    const auto field = event.find(key);
    return field != event.end() && field->is_string() ? field->get<std::string>() : "";
  };
  if (text("event") == name(EventKind::kEnd)) return Standing::kAfter;
  if (text("event") != name(EventKind::kCheckpoint)) return Standing::kBefore;
  const bool last = text("which") == "last" && step->get<uint64_t>() == last_step;
  return last ? Standing::kSeal : Standing::kAfter;
}

// The end of the last complete event that belongs to the checkpoint of last_step. Of its step there
// may be others behind it, as of a ceiling that moved before the process was killed: the run that
// goes on makes them again.
uint64_t bytes_to_keep(std::istream& file, uint64_t last_step) {
  uint64_t end = 0, keep = 0;
  bool sealed = false, cut = false;
  // getline meets the end of the file only in a line without an end.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    end += line.size() + 1;
    const Standing here = standing(line, last_step);
    sealed |= here == Standing::kSeal;
    cut = sealed && (cut || here == Standing::kBefore) && here != Standing::kSeal;
    if (here != Standing::kNone && !cut) keep = end;
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
