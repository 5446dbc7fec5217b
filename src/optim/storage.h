#pragma once
// Room: optim. How one parameter's weights and optimizer state lie in bytes: two blocks, each
// booked by the planner as one buffer, and the parts inside them. Owns no bytes, knows no layer or
// layout: elements are numbered 0..count-1 in the order the kernels store them.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "numeric/format.h"

namespace tri::optim {

// Elements that are loaded, stepped and stored together, and that share one scale in int8 state.
// Every part is padded to whole blocks, so only a gradient ever has a short end.
inline constexpr size_t kBlock = 32;

// How weights are stored; the names are those of --weights.
enum class WeightForm : uint8_t { kF32, kF32AndBf16, kBf16x16, kBf16x8, kF16x8, kBf16Stochastic };
std::string_view name(WeightForm form);
std::optional<WeightForm> parse_weight_form(std::string_view name);

// How each moment is stored; the names are those of --state.
enum class StateForm : uint8_t { kF32, kBf16, kInt8 };
std::string_view name(StateForm form);
std::optional<StateForm> parse_state_form(std::string_view name);

// The parts of one parameter inside its two blocks. A plain value: copy it freely.
struct ParamStorage {
  WeightForm weight_form = WeightForm::kF32;
  StateForm state_form = StateForm::kF32;
  size_t count = 0;
  std::byte* main = nullptr;       // fp32, bf16 or fp16
  std::byte* remainder = nullptr;  // int16 or int8 of a split form, otherwise null
  std::byte* working = nullptr;    // the bf16 copy of kF32AndBf16, otherwise null
  std::byte* first = nullptr;      // moments; null where the rule has none
  std::byte* second = nullptr;
  std::byte* first_scale = nullptr;  // bf16, one per block of an int8 moment; otherwise null
  std::byte* second_scale = nullptr;
};

// Bytes of an element in each part; 0: there is no such part.
struct ElementBytes {
  size_t main, remainder, working, moment;
};
ElementBytes element_bytes(WeightForm weight_form, StateForm state_form);

// Sizes of the two blocks; both are multiples of 64. `moments` is 0, 1 or 2 (see update.h).
size_t weight_bytes(WeightForm form, size_t count);
size_t state_bytes(StateForm form, size_t count, size_t moments);

// Finds the parts. REQUIRES: blocks of the sizes above, aligned to 64; state only if moments > 0.
ParamStorage bind(WeightForm weight_form, StateForm state_form, size_t count, size_t moments,
                  std::byte* weights, std::byte* state);

// Zeroes weights, state and padding.
void clear_storage(const ParamStorage& storage);

// Sets all weights, rounded to nearest, and zeroes the state and the padding.
// REQUIRES: values.size() == storage.count.
void init_storage(const ParamStorage& storage, std::span<const float> values);

// Merges all parts of elements [begin, begin + out.size()) to fp32, exactly. Any range inside the
// parameter; thread-safe while nobody writes it.
void read_weights(const ParamStorage& storage, size_t begin, std::span<float> out) noexcept;

// Stores any range of weights, rounded to nearest in every form. Thread-safe on disjoint ranges.
void write_weights(const ParamStorage& storage, size_t begin,
                   std::span<const float> values) noexcept;

// What kernels read in a 16-bit layer: the high part or the working copy, without the remainder.
struct WorkingWeights {
  const std::byte* data;
  numeric::Format format;
};
WorkingWeights working_weights(const ParamStorage& storage);

}  // namespace tri::optim
