#include "simd/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/target.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace {
int64_t own_target() { return HWY_TARGET; }
}  // namespace
}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

namespace tri::simd {

HWY_EXPORT(own_target);

namespace {

// Lower bits are better targets.
std::vector<int64_t> bits_of(int64_t mask) {
  std::vector<int64_t> bits;
  for (; mask != 0; mask &= mask - 1) bits.push_back(mask & ~(mask - 1));
  return bits;
}

// `with_bf16`: AVX3 comes in two forms, the one with products of bf16 first.
std::vector<std::string_view> names_of(int64_t mask, bool with_bf16) {
  std::vector<std::string_view> names;
  for (const int64_t bit : bits_of(mask)) {
    if (bit == HWY_AVX3 && with_bf16) names.push_back(kBf16Target);
    names.emplace_back(hwy::TargetName(bit));
  }
  return names;
}

// What the machine supports does not change, but a forced target hides it: asked once, first.
int64_t runnable_mask() {
  static const int64_t mask = hwy::SupportedTargets() & HWY_TARGETS;
  return mask;
}

bool machine_multiplies_bf16() {
#if HWY_ARCH_X86
  static const bool can = __builtin_cpu_supports("avx512bf16") != 0;
  return can;
#else
  return false;
#endif
}

// AVX3 was asked for by name: without its products of bf16.
bool fp32_products_only = false;

}  // namespace

bool multiplies_bf16() {
  return machine_multiplies_bf16() && !fp32_products_only &&
         HWY_DYNAMIC_DISPATCH(own_target)() == HWY_AVX3;
}

std::string_view active_target() {
  return multiplies_bf16() ? kBf16Target
                           : std::string_view(hwy::TargetName(HWY_DYNAMIC_DISPATCH(own_target)()));
}

std::vector<std::string_view> compiled_targets() { return names_of(HWY_TARGETS, HWY_ARCH_X86); }

std::vector<std::string_view> runnable_targets() {
  return names_of(runnable_mask(), machine_multiplies_bf16());
}

Result<void> force_target(std::string_view name) {
  int64_t chosen = 0;
  for (const int64_t bit : bits_of(runnable_mask())) {
    if (name == hwy::TargetName(bit)) chosen = bit;
    if (name == kBf16Target && bit == HWY_AVX3 && machine_multiplies_bf16()) chosen = bit;
  }
  if (chosen == 0 && !name.empty() && name != "auto") {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("no SIMD target \"{}\" on this machine; choose one of: auto, {}",
                                  name, fmt::join(runnable_targets(), ", ")));
  }
  fp32_products_only = name == hwy::TargetName(HWY_AVX3);
  hwy::SetSupportedTargetsForTest(chosen);  // 0 ends the override
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return {};
}

Result<void> force_target_from_environment() {
  const char* name = std::getenv("TRIACCEL_SIMD");
  return name != nullptr ? force_target(name) : Result<void>();
}

}  // namespace tri::simd
#endif  // HWY_ONCE
