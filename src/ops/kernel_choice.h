#pragma once
// Room: ops. Which of its kernels an operation runs. A choice is data, made elsewhere and handed
// over in OperationSpec: by default the shape decides (see each op's rule), so that every run has
// the same bits; whoever chooses otherwise has to remember it. Knows no clock.
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tri::ops {

enum class Kernel : uint8_t {
  kByShape,   // asked for: whatever the rule says
  kDirect,    // the sum over taps; backward: first to the data, then to the weights
  kWinograd,  // other bits than kDirect, see winograd.h
  kJoined,    // backward to data and weights in one pass; the bits of kDirect
};

struct Kernels {
  Kernel forward = Kernel::kByShape, backward = Kernel::kByShape;
  bool operator==(const Kernels&) const = default;
};

// What a pass may run; the same twice where there is no choice.
struct KernelChoice {
  Kernel rule = Kernel::kDirect, other = Kernel::kDirect;

  // A kernel that there is not is as good as none asked for.
  Kernel of(Kernel asked) const { return asked == other ? other : rule; }
  Kernel instead_of(Kernel used) const { return used == rule ? other : rule; }
};

inline constexpr std::array<std::string_view, 4> kKernelNames = {"by shape", "direct", "winograd",
                                                                 "joined"};

constexpr std::string_view name(Kernel kernel) { return kKernelNames[static_cast<size_t>(kernel)]; }

constexpr std::optional<Kernel> parse_kernel(std::string_view text) {
  for (size_t i = 0; i < kKernelNames.size(); ++i)
    if (kKernelNames[i] == text) return static_cast<Kernel>(i);
  return std::nullopt;
}

}  // namespace tri::ops
