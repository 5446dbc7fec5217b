#pragma once
// Room: data. Which random changes an image goes through on its way into a batch, as --augment
// names them. How they are done: transform.h.
#include <string>
#include <string_view>

#include "tri/result.h"

namespace tri::data {

struct Augment {
  int crop = 0;       // pad by so many black pixels on each side, cut the old size out at random
  bool flip = false;  // mirror left and right, every second time
  int cutout = 0;     // blank a square of this side, centred anywhere, with the mean
  bool operator==(const Augment&) const = default;

  std::string text() const;  // what parse_augment() reads back
};

// `none`, `auto` (the set's own choice, given as `automatic`) or a list such as
// `crop4,flip,cutout8`.
Result<Augment> parse_augment(std::string_view text, const Augment& automatic);

}  // namespace tri::data
