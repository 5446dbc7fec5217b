#pragma once
// Room: checkpoint. A file descriptor whose refusals are sentences. No buffering, no formats.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "tri/result.h"

namespace tri::checkpoint {

// Pieces in which whole files are read and written, so that none is ever held in memory.
inline constexpr size_t kPieceBytes = size_t{1} << 20;

class File {
 public:
  static Result<File> create(std::string path);  // empties an existing one
  static Result<File> open(std::string path);    // for reading; refuses what is not a regular file

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // at open(), or written so far

  Result<void> write(std::span<const std::byte> bytes);
  // Fills `out` from `offset`; a file that ends earlier is an error. Thread-safe.
  Result<void> read(uint64_t offset, std::span<std::byte> out) const;
  // After this the bytes survive a power failure.
  Result<void> sync_and_close();

 private:
  File(int fd, std::string path, uint64_t size) : fd_(fd), path_(std::move(path)), size_(size) {}

  int fd_ = -1;
  std::string path_;
  uint64_t size_ = 0;
};

// "cannot VERB 'PATH': REASON", with advice where the reason has one; takes errno.
Unexpected refused(const char* verb, const std::string& path, int error);

std::string parent_of(const std::string& path);  // "." where it names none

// So that names in it outlive a power cut.
Result<void> sync_directory(const std::string& path);

}  // namespace tri::checkpoint
