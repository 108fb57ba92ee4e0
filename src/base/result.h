// Errors as values. A function that reads what a user gave returns Result<T>; a broken invariant is a DGEM_CHECK;
// a failing device or disk throws Fault, which is caught at the engine's edge.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace dgem {

// What was wrong with an input and what to do about it. `pointer` is a JSON pointer into the input ("" = the whole).
struct Error {
  std::string message;
  std::string pointer;
};

template <class... Args>
Error make_error(fmt::format_string<Args...> format, Args&&... args) {
  return Error{fmt::format(format, std::forward<Args>(args)...), {}};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT

  bool ok() const { return !error_; }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

// A device, disk or memory that failed, through no fault of the request.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace dgem

// Ends the process with a message: the program itself is wrong. Never used on input.
#define DGEM_CHECK(condition, ...)                                                       \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::dgem::check_failed(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (false)

#define DGEM_CONCAT_INNER(a, b) a##b
#define DGEM_CONCAT(a, b) DGEM_CONCAT_INNER(a, b)

// Returns the error of a Status-like expression from the enclosing function.
#define DGEM_RETURN_IF_ERROR(expression)                                                      \
  do {                                                                                        \
    if (auto dgem_status = (expression); !dgem_status) return std::move(dgem_status).error(); \
  } while (false)

// DGEM_ASSIGN(auto x, f()): x = the value of f(), or returns its error from the enclosing function.
#define DGEM_ASSIGN(target, expression)                                                                    \
  auto DGEM_CONCAT(dgem_result_, __LINE__) = (expression);                                                 \
  if (!DGEM_CONCAT(dgem_result_, __LINE__)) return std::move(DGEM_CONCAT(dgem_result_, __LINE__)).error(); \
  target = std::move(DGEM_CONCAT(dgem_result_, __LINE__)).value()
