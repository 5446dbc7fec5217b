#include "report/page.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace tri::report {

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

Result<Page> Page::create(const std::string& path) {
  std::string temporary = fmt::format("{}.tmp-{}", path, ::getpid());
  std::FILE* const file = std::fopen(temporary.c_str(), "wbe");
  Page page(path, std::move(temporary), file);
  if (file == nullptr) return page.refused(errno);
  return page;
}

Page::Page(Page&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, nullptr)),
      error_(other.error_) {}

Page::~Page() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  ::unlink(temporary_.c_str());
}

void Page::raw(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() && error_ == 0) error_ = errno;
}

Result<void> Page::finish() {
  if (std::fclose(std::exchange(file_, nullptr)) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error_ = errno;
  if (error_ == 0) return {};
  ::unlink(temporary_.c_str());
  return refused(error_);
}

Unexpected Page::refused(int error) const {
  return unexpected(ErrorCode::kFailed,
                    fmt::format("cannot write the report '{}': {}; check the path, its permissions "
                                "and the free space",
                                path_, std::strerror(error)));
}

}  // namespace tri::report
