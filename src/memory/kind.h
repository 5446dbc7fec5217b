#pragma once
// Room: memory. What bytes are for; plans, accounts and reports sort them by it.
#include <array>
#include <cstddef>
#include <string_view>

namespace tri::memory {

enum class Kind { kWeights, kState, kActivations, kGradients, kScratch, kData };

inline constexpr std::array kKinds = {Kind::kWeights,   Kind::kState,   Kind::kActivations,
                                      Kind::kGradients, Kind::kScratch, Kind::kData};

constexpr std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::kWeights:
      return "weights";
    case Kind::kState:
      return "state";
    case Kind::kActivations:
      return "activations";
    case Kind::kGradients:
      return "gradients";
    case Kind::kScratch:
      return "scratch";
    case Kind::kData:
      return "data";
  }
  return "";
}

// One number of bytes per kind.
struct KindBytes {
  std::array<size_t, kKinds.size()> bytes{};

  size_t& operator[](Kind kind) { return bytes[static_cast<size_t>(kind)]; }
  size_t operator[](Kind kind) const { return bytes[static_cast<size_t>(kind)]; }
  size_t total() const {
    size_t sum = 0;
    for (const size_t part : bytes) sum += part;
    return sum;
  }
  bool operator==(const KindBytes&) const = default;
};

}  // namespace tri::memory
