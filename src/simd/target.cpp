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
#if HWY_ARCH_X86 && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

enum class Products { kF32, kPairs, kBlocks };  // of bf16, but for the first

// AVX3 comes in forms that differ by their products.
struct Target {
  int64_t bit;
  Products products;

  std::string_view name() const {
    switch (products) {
      case Products::kPairs:
        return kBf16Target;
      case Products::kBlocks:
        return kAmxTarget;
      case Products::kF32:
        break;
    }
    return hwy::TargetName(bit);
  }
};

// What the machine supports does not change, but a forced target hides it: asked once, first.
int64_t runnable_mask() {
  static const int64_t mask = hwy::SupportedTargets() & HWY_TARGETS;
  return mask;
}

#if HWY_ARCH_X86 && defined(__linux__)
bool machine_multiplies_pairs() { return __builtin_cpu_supports("avx512bf16") != 0; }

// The kernel hands out the registers, which are large, to processes that ask.
bool machine_multiplies_blocks() {
  constexpr unsigned kFeatures = 7, kBf16 = 1u << 22, kTiles = 1u << 24;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(kFeatures, 0, &a, &b, &c, &d) == 0) return false;
  return (d & kBf16) != 0 && (d & kTiles) != 0 &&
         syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool made_by_intel() { return __builtin_cpu_is("intel") != 0; }
#else
bool machine_multiplies_pairs() { return false; }
bool machine_multiplies_blocks() { return false; }
bool made_by_intel() { return false; }
#endif

// Best first. Intel's processors take two cycles for a multiplication of pairs, so that it
// multiplies no more numbers in a cycle than two of fp32 do, and loads more.
std::vector<Target> targets_of(int64_t mask, bool pairs, bool blocks, bool pairs_pay) {
  std::vector<Target> targets;
  for (const int64_t bit : bits_of(mask)) {
    const bool forms = bit == HWY_AVX3;
    if (forms && blocks) targets.push_back({bit, Products::kBlocks});
    if (forms && pairs && pairs_pay) targets.push_back({bit, Products::kPairs});
    targets.push_back({bit, Products::kF32});
    if (forms && pairs && !pairs_pay) targets.push_back({bit, Products::kPairs});
  }
  return targets;
}

const std::vector<Target>& runnable() {
  static const std::vector<Target> targets = [] {
    const bool pairs = machine_multiplies_pairs();
    std::vector<Target> all =
        targets_of(runnable_mask(), pairs, pairs && machine_multiplies_blocks(), !made_by_intel());
    if (imitates_blocks()) all.push_back({HWY_AVX3, Products::kBlocks});
    return all;
  }();
  return targets;
}

std::vector<std::string_view> names_of(const std::vector<Target>& targets) {
  std::vector<std::string_view> names;
  for (const Target& target : targets) names.push_back(target.name());
  return names;
}

// Which of runnable() was asked for; null: the best.
const Target* forced = nullptr;

const Target& active() { return forced != nullptr ? *forced : runnable().front(); }

}  // namespace

#if defined(TRI_CHECKS)
bool imitates_blocks() {
  static const bool imitates = (runnable_mask() & HWY_AVX3) != 0 && machine_multiplies_pairs() &&
                               !machine_multiplies_blocks();
  return imitates;
}
#endif

bool multiplies_bf16() { return active().products != Products::kF32; }
bool multiplies_blocks() { return active().products == Products::kBlocks; }

std::string_view active_target() {
  const int64_t runs = HWY_DYNAMIC_DISPATCH(own_target)();
  return runs == active().bit ? active().name() : std::string_view(hwy::TargetName(runs));
}

std::vector<std::string_view> compiled_targets() {
  return names_of(targets_of(HWY_TARGETS, HWY_ARCH_X86, HWY_ARCH_X86, true));
}

std::vector<std::string_view> runnable_targets() { return names_of(runnable()); }

Result<void> force_target(std::string_view name) {
  const Target* chosen = nullptr;
  for (const Target& target : runnable())
    if (name == target.name()) chosen = &target;
  if (chosen == nullptr && !name.empty() && name != "auto") {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("no SIMD target \"{}\" on this machine; choose one of: auto, {}",
                                  name, fmt::join(runnable_targets(), ", ")));
  }
  forced = chosen;
  hwy::SetSupportedTargetsForTest(chosen == nullptr ? 0 : chosen->bit);  // 0 ends the override
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return {};
}

Result<void> force_target_from_environment() {
  const char* name = std::getenv("TRIACCEL_SIMD");
  return name != nullptr ? force_target(name) : Result<void>();
}

}  // namespace tri::simd
#endif  // HWY_ONCE
