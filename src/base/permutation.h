#pragma once
// Room: base. The order of an epoch without the memory of one: a permutation of [0, n) that can be
// asked at any place. It is a Feistel network over the next even number of bits; results outside
// [0, n) are fed back until one falls inside ("cycle walking"), less than 4 times on average.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace tri::base {

class Permutation {
 public:
  // REQUIRES: n > 0.
  constexpr Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
      : n_(n), key_(Stream(seed, Purpose::kShuffle, epoch).key()) {
    TRI_CHECK(n > 0);
    // At least 2^8 places, as the halves of a smaller network have too few round functions to
    // reach all orders evenly.
    half_bits_ = std::max(4, (static_cast<int>(std::bit_width(n - 1)) + 1) / 2);
  }

  constexpr uint64_t size() const { return n_; }

  // REQUIRES: i < size().
  constexpr uint64_t operator()(uint64_t i) const {
    TRI_DCHECK(i < n_, "i = {}, n = {}", i, n_);
    do i = encrypt(i);
    while (i >= n_);
    return i;
  }

 private:
  // Four rounds make a good permutation of a large domain (Luby and Rackoff, 1988); small domains
  // need more.
  static constexpr uint32_t kRounds = 8;

  constexpr uint64_t encrypt(uint64_t place) const {
    const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
    uint32_t left = static_cast<uint32_t>(place >> half_bits_);
    uint32_t right = static_cast<uint32_t>(place & mask);
    for (uint32_t round = 0; round < kRounds; ++round) {
      const uint32_t noise = Philox::block(key_, {right, round, 0, 0})[0];
      left = std::exchange(right, static_cast<uint32_t>((left ^ noise) & mask));
    }
    return uint64_t{left} << half_bits_ | right;
  }

  uint64_t n_;
  uint64_t key_;
  int half_bits_ = 0;
};

}  // namespace tri::base
