#include "numeric/format.h"

namespace tri::numeric {

std::optional<Format> parse_format(std::string_view name) {
  for (size_t i = 0; i < kFormats; ++i) {
    if (kSpecs[i].name == name) return static_cast<Format>(i);
  }
  return std::nullopt;
}

}  // namespace tri::numeric
