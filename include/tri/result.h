#pragma once
// Open to every room. A Result is a value or an Error; its members carry the names of
// std::expected so that C++23 can replace it. Our code throws nothing: what the world may refuse
// (files, sizes, memory) comes back as a Result, our own bugs end in TRI_CHECK (base/check.h).
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace tri {

// What an error means to the caller; the command line maps it to its exit code.
enum class ErrorCode {
  kFailed,       // the world said no: a file, a format, a system call
  kInvalid,      // wrong use: an option, a size, a graph
  kDoesNotFit,   // the ceiling is too small for what was asked
  kDiverged,     // the training lost its numbers for good
  kInterrupted,  // stopped by SIGINT after saving
  kTerminated,   // stopped by SIGTERM after saving
};

// One sentence for the user: what was wrong, the value seen, what to do.
struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

// Wraps the error on return: `return unexpected(ErrorCode::kInvalid, "...")`.
struct Unexpected {
  Error error;
};
inline Unexpected unexpected(Error error) { return {std::move(error)}; }
inline Unexpected unexpected(ErrorCode code, std::string message) {
  return {{code, std::move(message)}};
}

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = Error;

  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Unexpected failure) : held_(std::in_place_index<1>, std::move(failure.error)) {}

  bool has_value() const { return held_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  // REQUIRES: has_value(). Otherwise the program aborts, as with any broken rule of ours.
  T& value() & { return *checked(std::get_if<0>(&held_)); }
  const T& value() const& { return *checked(std::get_if<0>(&held_)); }
  T&& value() && { return std::move(*checked(std::get_if<0>(&held_))); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T value_or(T otherwise) const& { return has_value() ? value() : std::move(otherwise); }

  // REQUIRES: !has_value().
  const Error& error() const& { return *checked(std::get_if<1>(&held_)); }
  Error&& error() && { return std::move(*checked(std::get_if<1>(&held_))); }

 private:
  template <class P>
  static P* checked(P* held) {
    if (held == nullptr) __builtin_trap();
    return held;
  }

  std::variant<T, Error> held_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  using error_type = Error;

  Result() = default;
  Result(Unexpected failure) : error_(std::move(failure.error)) {}

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  const Error& error() const& {
    if (!error_) __builtin_trap();
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

// Leaves the calling function with the error of `expression`, a Result<void>.
#define TRI_TRY(expression)                                        \
  do {                                                             \
    if (auto tri_result_ = (expression); !tri_result_.has_value()) \
      return ::tri::unexpected(tri_result_.error());               \
  } while (false)

// TRI_ASSIGN(auto plan, solve(bytes)): the value of a Result<T>, or leaves as TRI_TRY does. It is
// several statements, so it needs braces under an `if`.
#define TRI_ASSIGN(target, expression) \
  TRI_ASSIGN_VIA_(TRI_JOIN_(tri_result_at_, __LINE__), target, expression)
#define TRI_ASSIGN_VIA_(result, target, expression)                             \
  auto result = (expression);                                                   \
  if (!result.has_value()) return ::tri::unexpected(std::move(result).error()); \
  target = *std::move(result)
#define TRI_JOIN_(a, b) TRI_JOIN_NOW_(a, b)  // joins after __LINE__ has become a number
#define TRI_JOIN_NOW_(a, b) a##b

}  // namespace tri
