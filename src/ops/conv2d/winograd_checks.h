#pragma once
// Room: ops, tests. What the error bounds of Winograd's passes share.
//
// Note [Error of Winograd with pairs]. Rounded to bf16, each operand of a product is off by another
// 2^-8 of itself at most. These roundings are independent, so their squares add: a result is off by
// the root of the sum of (2^-8 / sqrt 3)^2 (fs)^2 over both operands of every product fs that
// enters it, or less: the error of a rounding is even over half a step of its binade.
#include <cmath>

namespace tri::ops {

inline constexpr double kTwoPairRoundings = (1 + 0x1p-8) * (1 + 0x1p-8);
inline constexpr double kPairSquares = 2 * 0x1p-16 / 3;  // times the squares of all products

inline double magnitude(double value) { return std::fabs(value); }
inline double itself(double value) { return value; }
inline double square(double value) { return value * value; }

}  // namespace tri::ops
