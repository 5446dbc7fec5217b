#pragma once
// Room: simd. Which of the compiled SIMD targets runs, and how to choose another one. The choice
// holds for the whole process: change it before any work starts, or in tests.
#include <string>
#include <string_view>
#include <vector>

#include "tri/result.h"

namespace tri::simd {

// Note [AVX3_BF16]. The same vector code as AVX3, on a processor that also multiplies pairs of bf16
// numbers: twice as many products in a cycle, summed in fp32. Such products have other bits than
// those of fp32, so it counts as a target of its own, with a name that a checkpoint remembers.
inline constexpr std::string_view kBf16Target = "AVX3_BF16";

// Note [AVX3_AMX]. The same on a processor that also multiplies whole blocks, 16 x 32 by 32 x 16
// numbers of bf16 at a time (Intel, AMX): sixteen times as many products in a cycle, summed in yet
// another order. There the pairs of AVX3_BF16 are slower than products of fp32.
inline constexpr std::string_view kAmxTarget = "AVX3_AMX";

// As reported by the dispatched code itself: "SSE4", "AVX2", "AVX3", ...
std::string_view active_target();

// Whether the active target is kBf16Target or kAmxTarget.
bool multiplies_bf16();
// Whether it is kAmxTarget.
bool multiplies_blocks();
// Whether a machine that multiplies pairs only imitates blocks: bit for bit and slowly, as the last
// of its targets. For tests; only builds with all checks do that.
#if defined(TRI_CHECKS)
bool imitates_blocks();
#else
constexpr bool imitates_blocks() { return false; }
#endif

// Both best first. Runnable: compiled and supported by this machine, whatever is forced now.
std::vector<std::string_view> compiled_targets();
std::vector<std::string_view> runnable_targets();

// Makes every dispatched function of the process use `name`; "" or "auto" gives the choice back to
// the machine. Fails with kInvalid and the list of the possible names.
Result<void> force_target(std::string_view name);

// force_target($TRIACCEL_SIMD) if that is set; for main() and for comparing targets.
Result<void> force_target_from_environment();

}  // namespace tri::simd
