#pragma once
// Room: base. Checks for our own bugs. A failed check prints its place and values and aborts; no
// caller handles it. Deleting every check would not change the behaviour of a correct program.
#include <fmt/format.h>

#include <string>

namespace tri::base {
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const std::string& values);
}  // namespace tri::base

// TRI_CHECK(n > 0, "n = {}", n): always on, for doors. TRI_DCHECK: for loops, in checked builds.
#define TRI_CHECK(condition, ...)                                                               \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::tri::base::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)

#if defined(TRI_CHECKS)
#define TRI_DCHECK(condition, ...) TRI_CHECK(condition, __VA_ARGS__)
#else
#define TRI_DCHECK(condition, ...) \
  do {                             \
  } while (false)
#endif
