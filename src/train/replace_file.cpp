#include "train/replace_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>

#include "checkpoint/file.h"

namespace tri::train {
namespace {

using checkpoint::File;
using checkpoint::refused;

Result<void> write_new(const std::string& path, std::string_view text) {
  TRI_ASSIGN(File file, File::create(path));
  TRI_TRY(file.write(std::as_bytes(std::span(text))));
  return file.sync_and_close();
}

}  // namespace

Result<void> replace_file(const std::string& path, std::string_view text) {
  const std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  Result<void> done = write_new(temporary, text);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0) {
    done = refused("replace", path, errno);
  }
  if (!done) ::unlink(temporary.c_str());
  return done ? checkpoint::sync_directory(checkpoint::parent_of(path)) : done;
}

Result<std::string> read_small_file(const std::string& path) {
  constexpr uint64_t kMostBytes = uint64_t{16} << 20;
  TRI_ASSIGN(const File file, File::open(path));
  if (file.size() > kMostBytes) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("cannot read '{}': it has {} bytes, far more than expected; "
                                  "check the path",
                                  path, file.size()));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  TRI_TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace tri::train
