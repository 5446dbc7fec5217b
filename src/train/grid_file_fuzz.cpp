// Any bytes as a grid file. What is accepted holds only options that a configuration takes.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tri/config.h"
#include "tri/grid_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto grid = tri::parse_grid({reinterpret_cast<const char*>(data), size}, "input");
  if (!grid) return 0;
  for (const auto& [key, text] : grid->common) {
    TRI_CHECK(tri::ConfigBuilder().set(key, text).has_value(), "{} = {}", key, text);
  }
  return 0;
}
