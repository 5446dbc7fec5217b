#include "checkpoint/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/manifest.h"

namespace tri::checkpoint {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view kTemporary = ".tmp-";

std::string old_name(const std::string& path) { return path + ".old"; }

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// "runs/a/last/" and "runs/a/last" are one checkpoint.
std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

Result<void> rename_to(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return refused("rename", from, errno);
  return {};
}

Result<void> remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return refused("remove", path, error.value());
  return {};
}

// Makes and locks the temporary. A cleaner may hold the lock for a moment and remove the directory
// just made: then it is made again.
Result<int> make_locked(const std::string& path) {
  for (;;) {
    if (::mkdir(path.c_str(), 0777) != 0) return refused("create", path, errno);
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) return refused("open", path, errno);
    struct stat status = {};
    if (::flock(fd, LOCK_EX) == 0 && ::fstat(fd, &status) == 0 && status.st_nlink > 0) return fd;
    const int error = errno;
    ::close(fd);
    if (status.st_nlink > 0) return refused("lock", path, error);
  }
}

// Removes a temporary unless a living writer holds it; whether one does.
Result<bool> keep_if_living(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;  // its writer was faster, or it is no directory of ours
  const bool stale = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  const Result<void> removed = stale ? remove_tree(path) : Result<void>();
  ::close(fd);
  if (!removed) return unexpected(removed.error());
  return !stale;
}

Result<uint32_t> checksum(const File& file) {
  std::vector<std::byte> piece(static_cast<size_t>(std::min<uint64_t>(file.size(), kPieceBytes)));
  uint32_t crc = 0;
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    const auto part = std::span(piece).first(
        static_cast<size_t>(std::min<uint64_t>(piece.size(), file.size() - at)));
    TRI_TRY(file.read(at, part));
    crc = crc32c(crc, part);
  }
  return crc;
}

Unexpected damaged(const std::string& path, const std::string& why) {
  return unexpected(ErrorCode::kFailed,
                    fmt::format("'{}' is damaged: {}; use another checkpoint", path, why));
}

// The file of a record, if it has the recorded length.
Result<File> open_recorded(const std::string& path, const FileRecord& record) {
  Result<File> file = File::open(path);
  if (file && file->size() != record.bytes) {
    return damaged(path,
                   fmt::format("it has {} bytes and {} were saved", file->size(), record.bytes));
  }
  return file;
}

Result<void> compare(uint32_t crc, const std::string& path, const FileRecord& record) {
  if (crc == record.crc32c) return {};
  return damaged(path,
                 fmt::format("its CRC-32C is {:08x} and {:08x} was saved", crc, record.crc32c));
}

Result<std::string> read_whole(const File& file) {
  std::string content(static_cast<size_t>(file.size()), '\0');
  TRI_TRY(file.read(0, std::as_writable_bytes(std::span(content))));
  return content;
}

}  // namespace

Result<void> repair(const std::string& path) {
  const std::string prefix = fs::path(path).filename().string() + std::string(kTemporary);
  bool written = false;
  std::error_code error;
  for (fs::directory_iterator entry(parent_of(path), error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(prefix)) continue;
    TRI_ASSIGN(const bool living, keep_if_living(entry->path().string()));
    written = written || living;
  }
  const std::string old = old_name(path);
  if (written || !exists(old)) return {};  // a living writer may be between its two renames
  if (!exists(path)) return rename_to(old, path);
  (void)remove_tree(old);  // its writer may be at it too; what is left the next one removes
  return {};
}

DirectoryWriter::DirectoryWriter(std::string path, std::string temporary, int lock,
                                 CommitOptions options)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      lock_(lock),
      options_(std::move(options)) {}

DirectoryWriter::DirectoryWriter(DirectoryWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      lock_(std::exchange(other.lock_, -1)),
      options_(std::move(other.options_)),
      files_(std::move(other.files_)) {}

DirectoryWriter::~DirectoryWriter() {
  // What cannot be removed now is removed by the next writer.
  if (!temporary_.empty()) (void)remove_tree(temporary_);
  if (lock_ >= 0) ::close(lock_);
}

Result<DirectoryWriter> DirectoryWriter::begin(std::string path, CommitOptions options) {
  path = without_slash(std::move(path));
  TRI_TRY(repair(path));
  std::error_code ignored;
  if (exists(path) && !exists(fmt::format("{}/{}", path, kManifest)) &&
      !fs::is_empty(path, ignored)) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("'{}' exists and is not a checkpoint; move it away or save under "
                                  "another name",
                                  path));
  }
  std::string temporary = fmt::format("{}{}{}", path, kTemporary, ::getpid());
  const Result<int> lock = make_locked(temporary);
  if (!lock) return unexpected(lock.error());
  DirectoryWriter writer(std::move(path), std::move(temporary), *lock, std::move(options));
  writer.reached(CommitStep::kCreated);
  return writer;
}

std::string DirectoryWriter::file(std::string_view name) const {
  return fmt::format("{}/{}", temporary_, name);
}

void DirectoryWriter::add(FileRecord record) { files_.push_back(std::move(record)); }

Result<void> DirectoryWriter::write(std::string_view name, std::string_view content) {
  Result<File> file = File::create(this->file(name));
  if (!file) return unexpected(file.error());
  const auto bytes = std::as_bytes(std::span(content));
  TRI_TRY(file->write(bytes));
  TRI_TRY(file->sync_and_close());
  add({std::string(name), bytes.size(), crc32c(0, bytes)});
  return {};
}

Result<void> DirectoryWriter::write_manifest() {
  Result<File> file = File::create(this->file(kManifest));
  if (!file) return unexpected(file.error());
  const std::string text = encode_manifest(files_);
  TRI_TRY(file->write(std::as_bytes(std::span(text))));
  return file->sync_and_close();
}

// See Note [Commit protocol]. Leaves the old checkpoint, if any, under the temporary name or as
// DIR.old.
Result<void> DirectoryWriter::swap_in() {
  if (!exists(path_)) {
    TRI_TRY(rename_to(temporary_, path_));
    temporary_.clear();
    return {};
  }
  if (options_.exchange) {
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
      return {};
    }
    if (errno != EINVAL && errno != ENOSYS) return refused("replace", path_, errno);
  }
  const std::string old = old_name(path_);
  TRI_TRY(rename_to(path_, old));
  reached(CommitStep::kMovedAside);
  Result<void> moved = rename_to(temporary_, path_);
  if (!moved) {
    TRI_TRY(rename_to(old, path_));
    return moved;
  }
  temporary_ = old;
  return {};
}

Result<void> DirectoryWriter::commit() {
  TRI_CHECK(!temporary_.empty(), "'{}' was committed before", path_);
  TRI_TRY(write_manifest());
  reached(CommitStep::kWritten);
  TRI_TRY(sync_directory(temporary_));
  reached(CommitStep::kSynced);
  TRI_TRY(swap_in());
  reached(CommitStep::kInPlace);
  TRI_TRY(sync_directory(parent_of(path_)));
  reached(CommitStep::kParentSynced);
  // An old one that cannot be removed is no failure of the new one; the next writer tries again.
  if (!temporary_.empty()) (void)remove_tree(std::exchange(temporary_, {}));
  reached(CommitStep::kDone);
  return {};
}

void DirectoryWriter::reached(CommitStep step) const {
  if (options_.at_step) options_.at_step(step);
}

Result<Directory> Directory::open(std::string path) {
  path = without_slash(std::move(path));
  TRI_TRY(repair(path));
  if (!exists(path) && exists(old_name(path))) path = old_name(path);
  if (!exists(path)) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("there is no checkpoint at '{}'; check the path", path));
  }
  Directory directory(std::move(path), {});
  const std::string manifest = directory.file(kManifest);
  const Result<File> file = File::open(manifest);
  if (!file) return unexpected(file.error());
  const Result<std::string> text = read_whole(*file);
  if (!text) return unexpected(text.error());
  Result<std::vector<FileRecord>> files = parse_manifest(*text);
  if (!files) return damaged(manifest, files.error().message);
  directory.files_ = std::move(*files);
  for (const FileRecord& record : directory.files_) {
    const Result<File> found = open_recorded(directory.file(record.name), record);
    if (!found) return unexpected(found.error());
  }
  return directory;
}

std::string Directory::file(std::string_view name) const {
  return fmt::format("{}/{}", path_, name);
}

Result<std::string> Directory::read(std::string_view name) const {
  const auto record = std::find_if(files_.begin(), files_.end(),
                                   [&](const FileRecord& file) { return file.name == name; });
  if (record == files_.end()) {
    return unexpected(ErrorCode::kFailed, fmt::format("'{}' has no file '{}'", path_, name));
  }
  const Result<File> opened = open_recorded(file(name), *record);
  if (!opened) return unexpected(opened.error());
  Result<std::string> content = read_whole(*opened);
  if (content) {
    TRI_TRY(compare(crc32c(0, std::as_bytes(std::span(*content))), opened->path(), *record));
  }
  return content;
}

Result<void> Directory::verify() const {
  for (const FileRecord& record : files_) {
    const Result<File> opened = open_recorded(file(record.name), record);
    if (!opened) return unexpected(opened.error());
    const Result<uint32_t> crc = checksum(*opened);
    if (!crc) return unexpected(crc.error());
    TRI_TRY(compare(*crc, opened->path(), record));
  }
  return {};
}

}  // namespace tri::checkpoint
