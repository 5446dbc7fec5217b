#pragma once
// Room: metrics. In: events. Out: a file with one JSON object per line, never half a line, as far
// as a process can promise: each line is one write(2), handed to the system before write() returns.
// A killed process loses nothing; after a power cut resume() repairs the end of the file.
#include <cstdint>
#include <filesystem>
#include <utility>

#include "metrics/event.h"
#include "tri/result.h"

namespace tri::metrics {

// Owns the open file. Not thread-safe.
class JsonlWriter {
 public:
  // Starts an empty file; a file of that name is replaced.
  static Result<JsonlWriter> create(const std::filesystem::path& path);

  // Goes on from a checkpoint of `last_step`: the file is cut after its last complete event of a
  // step <= last_step, as everything behind will happen again. A missing file counts as empty.
  static Result<JsonlWriter> resume(const std::filesystem::path& path, uint64_t last_step);

  JsonlWriter(JsonlWriter&& other) noexcept;
  JsonlWriter& operator=(JsonlWriter&& other) noexcept;
  ~JsonlWriter();

  // Appends one line. If the system takes only a part of it (a full disk), that part is removed
  // again, so that later events may still be written.
  Result<void> write(const Event& event);

 private:
  JsonlWriter(std::filesystem::path path, int file) : path_(std::move(path)), file_(file) {}

  std::filesystem::path path_;
  int file_ = -1;
};

}  // namespace tri::metrics
