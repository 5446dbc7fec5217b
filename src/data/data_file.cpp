#include "data/data_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tri::data {

Result<File> File::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer; adopt() then refuses it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return unexpected(ErrorCode::kFailed, fmt::format("cannot open {}: {}; check the path", path,
                                                      std::strerror(errno)));
  }
  return adopt(descriptor, path);
}

Result<File> File::adopt(int descriptor, std::string path) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} is not a regular file; name a data file", path));
  }
  return File(descriptor, std::move(path), status);
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      opened_(other.opened_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(opened_, other.opened_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> File::read(uint64_t offset, std::span<uint8_t> bytes) const {
  const auto got = read_some(offset, bytes);
  if (!got) return unexpected(got.error());
  if (*got != bytes.size()) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} ends at byte {} where {} bytes at {} were expected; it is "
                                  "truncated, fetch it again",
                                  path_, size(), bytes.size(), offset));
  }
  return {};
}

Result<size_t> File::read_some(uint64_t offset, std::span<uint8_t> bytes) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::pread(descriptor_, bytes.data() + done, bytes.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("cannot read {} at byte {}: {}; check the disk", path_,
                                    offset + done, std::strerror(errno)));
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  struct stat now = {};
  if (::fstat(descriptor_, &now) != 0 || now.st_size != opened_.st_size ||
      now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
      now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} changed while it was in use ({} bytes, then {}); restore it "
                                  "and resume",
                                  path_, opened_.st_size, now.st_size));
  }
  return done;
}

}  // namespace tri::data
