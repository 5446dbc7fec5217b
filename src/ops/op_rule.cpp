#include "ops/op_rule.h"

#include <fmt/format.h>

namespace tri::ops {
namespace {

// Number of windows along one axis. REQUIRES: checked extents, so nothing overflows.
int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode) {
  const int64_t room = size + 2 * padding - kernel;
  if (room < 0) return 0;
  int64_t count = room / stride + 1;
  if (ceil_mode && room % stride != 0 && count * stride < size + padding) ++count;
  return count;
}

Result<void> check_padding(std::string_view what, int64_t value) {
  if (value >= 0 && value <= kMaxExtent) return {};
  return refuse(fmt::format("{} is {}; it must be 0..{}", what, value, kMaxExtent));
}

}  // namespace

Unexpected refuse(std::string message) {
  return unexpected(ErrorCode::kInvalid, std::move(message));
}

Result<void> check_extent(std::string_view what, int64_t value) {
  if (value >= 1 && value <= kMaxExtent) return {};
  return refuse(fmt::format("{} is {}; it must be 1..{}", what, value, kMaxExtent));
}

Result<void> check_shape(const tensor::Shape& shape) {
  const auto valid = [](int64_t extent) { return extent >= 1 && extent <= kMaxExtent; };
  if (!valid(shape.h) || !valid(shape.w) || !valid(shape.c))
    return refuse(
        fmt::format("the shape {} has an extent outside 1..{}", shape.text(), kMaxExtent));
  if (shape.pixels() > kMaxElements / shape.c)
    return refuse(fmt::format("the shape {} has more than {} elements; use a smaller size",
                              shape.text(), kMaxElements));
  return {};
}

Result<void> check_rate(float rate) {
  if (rate >= 0.0f && rate < 1.0f) return {};
  return refuse(fmt::format("the rate is {}; it must be at least 0 and below 1", rate));
}

Result<void> check_arity(std::span<const tensor::Shape> inputs, size_t expected) {
  if (inputs.size() == expected) return {};
  return refuse(fmt::format("{} inputs were given; it takes {}", inputs.size(), expected));
}

Result<tensor::Shape> slide_window(const Attributes& attributes, const tensor::Shape& input) {
  const Attributes& a = attributes;
  TRI_TRY(check_extent("kernel height", a.kernel_h));
  TRI_TRY(check_extent("kernel width", a.kernel_w));
  TRI_TRY(check_extent("vertical stride", a.stride_h));
  TRI_TRY(check_extent("horizontal stride", a.stride_w));
  TRI_TRY(check_padding("vertical padding", a.padding_h));
  TRI_TRY(check_padding("horizontal padding", a.padding_w));
  const int64_t h = windows(input.h, a.kernel_h, a.stride_h, a.padding_h, a.ceil_mode);
  const int64_t w = windows(input.w, a.kernel_w, a.stride_w, a.padding_w, a.ceil_mode);
  if (h < 1 || w < 1)
    return refuse(
        fmt::format("a {}x{} kernel does not fit the input {} padded by {}x{}; use a larger input "
                    "or more padding",
                    a.kernel_h, a.kernel_w, input.text(), a.padding_h, a.padding_w));
  return tensor::Shape{h, w, input.c};
}

Result<tensor::Shape> slide_pool(const Attributes& attributes, const tensor::Shape& input) {
  const Attributes& a = attributes;
  Result<tensor::Shape> shape = slide_window(a, input);
  if (shape && (a.padding_h > a.kernel_h / 2 || a.padding_w > a.kernel_w / 2))
    return refuse(fmt::format("the padding {}x{} is more than half of the {}x{} kernel over {}",
                              a.padding_h, a.padding_w, a.kernel_h, a.kernel_w, input.text()));
  return shape;
}

}  // namespace tri::ops
