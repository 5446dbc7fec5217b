#pragma once
// Room: data. One regular file, read at any offset by any number of threads: pread into the
// caller's small buffers, so that a set of any size costs no memory. Knows no format.
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tri/result.h"

namespace tri::data {

class File {
 public:
  static Result<File> open(const std::string& path);
  // Takes over a descriptor; `path` is the name that messages show.
  static Result<File> adopt(int descriptor, std::string path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  uint64_t size() const { return static_cast<uint64_t>(opened_.st_size); }

  // Fills all of `bytes`. A file that is shorter, or whose size or time of change is no longer that
  // of the moment it was opened, is an error: a run must not mix two versions of its data.
  Result<void> read(uint64_t offset, std::span<uint8_t> bytes) const;

  // As read(), but stops at the end of the file; returns the number of bytes read.
  Result<size_t> read_some(uint64_t offset, std::span<uint8_t> bytes) const;

 private:
  File(int descriptor, std::string path, const struct stat& opened)
      : descriptor_(descriptor), path_(std::move(path)), opened_(opened) {}

  int descriptor_ = -1;
  std::string path_;
  struct stat opened_ = {};
};

}  // namespace tri::data
