#pragma once
// Room: base, for tests only. Inputs for what must hold for any input. The same seed draws the same
// inputs on every machine, so a failure is repeated by the seed it names.
//
//   for (uint64_t seed = 0; seed < 100; ++seed) {
//     SCOPED_TRACE(seed);
//     base::Draws draw(seed);
//     EXPECT_TRUE(is_bijective(Permutation(draw.in(1, 1500), draw.word(), draw.word())));
//   }
#include <concepts>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>

namespace tri::base {

class Draws {
 public:
  explicit Draws(uint64_t seed) : engine_(seed) {}

  uint64_t word() { return engine_(); }

  // Every magnitude equally likely, unlike word(), of which half use all 64 bits.
  uint64_t word_of_any_size() { return word() >> in(0, 64); }

  // low <= number < high; the remainder favours no number enough for a test to notice.
  template <std::integral T>
  T in(T low, T high) {
    const auto width = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
    return static_cast<T>(static_cast<uint64_t>(low) + word() % width);
  }

  bool coin() { return in(0, 2) == 1; }

  template <class List>
  const auto& of(const List& list) {
    return std::begin(list)[in<size_t>(0, std::size(list))];
  }

  // Up to `most` characters, each at least `low` and below `high`.
  std::string text(size_t most, int low, int high) {
    std::string text(in<size_t>(0, most + 1), '\0');
    for (char& character : text) character = static_cast<char>(in(low, high));
    return text;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace tri::base
