#include "checkpoint/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace tri::checkpoint {
namespace {

const char* advice(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "; free some space or write elsewhere";
    case EACCES:
    case EPERM:
    case EROFS:
      return "; make it accessible or choose another directory";
    case ENOENT:
      return "; check the path";
    case EEXIST:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
    case ENOTDIR:
      return "; choose another path";
    default:
      return "";
  }
}

}  // namespace

Unexpected refused(const char* verb, const std::string& path, int error) {
  return unexpected(ErrorCode::kFailed,
                    fmt::format("cannot {} '{}': {}{}", verb, path,
                                std::generic_category().message(error), advice(error)));
}

std::string parent_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

Result<void> sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return refused("open", path, errno);
  const bool synced = ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync a directory and say so with EINVAL; there is nothing to add.
  if (!synced && error != EINVAL) return refused("sync", path, error);
  return {};
}

Result<File> File::create(std::string path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return refused("create", path, errno);
  return File(fd, std::move(path), 0);
}

Result<File> File::open(std::string path) {
  // Without O_NONBLOCK a named pipe would wait for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return refused("open", path, errno);
  File file(fd, std::move(path), 0);
  struct stat status = {};
  if (::fstat(fd, &status) != 0) return refused("examine", file.path_, errno);
  if (!S_ISREG(status.st_mode)) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("cannot read '{}': it is not a regular file", file.path_));
  }
  file.size_ = static_cast<uint64_t>(status.st_size);
  return file;
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> File::write(std::span<const std::byte> bytes) {
  TRI_CHECK(fd_ >= 0, "'{}' is closed", path_);
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return refused("write", path_, errno);
    size_ += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return {};
}

Result<void> File::read(uint64_t offset, std::span<std::byte> out) const {
  TRI_CHECK(fd_ >= 0, "'{}' is closed", path_);
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refused("read", path_, errno);
    if (got == 0) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("cannot read '{}': it ends at byte {}, {} more were expected; "
                                    "it was truncated, restore it from a copy",
                                    path_, offset, out.size()));
    }
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
  return {};
}

Result<void> File::sync_and_close() {
  TRI_CHECK(fd_ >= 0, "'{}' is closed", path_);
  const bool synced = ::fsync(fd_) == 0;
  const int sync_error = errno;
  const bool closed = ::close(std::exchange(fd_, -1)) == 0;
  if (!synced && sync_error != EINVAL) return refused("sync", path_, sync_error);
  if (!closed) return refused("close", path_, errno);
  return {};
}

}  // namespace tri::checkpoint
