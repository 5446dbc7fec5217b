#pragma once
// apps/report. The page as a file: text in, pieces of a few kilobytes out. Knows no run.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "tri/result.h"

namespace tri::report {

// Text from a file of the run, safe inside an element or a quoted attribute.
std::string escaped(std::string_view text);

// Writes PATH.tmp-PID and renames it at the end, so that PATH is a whole page or what it was.
class Page {
 public:
  static Result<Page> create(const std::string& path);

  Page(Page&& other) noexcept;
  Page& operator=(Page&&) = delete;
  ~Page();  // without finish() nothing stays

  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    raw(fmt::format(format, std::forward<Args>(args)...));
  }
  // Failures are kept and told by finish().
  void raw(std::string_view text);

  Result<void> finish();

 private:
  Page(std::string path, std::string temporary, std::FILE* file)
      : path_(std::move(path)), temporary_(std::move(temporary)), file_(file) {}
  Unexpected refused(int error) const;

  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  int error_ = 0;
};

}  // namespace tri::report
