// Any bytes as a TOML configuration. What is accepted must be in range and survive config.toml.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tri/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tri::ConfigBuilder builder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (!builder.read_toml(text, "input")) return 0;
  const auto resolved = builder.resolve();
  if (!resolved) return 0;
  const tri::Config& config = resolved->config;
  TRI_CHECK(config.batch >= 1 && *config.lr > 0);
  TRI_CHECK(*config.ghost_batch == 0 || config.batch % *config.ghost_batch == 0);

  tri::ConfigBuilder again;
  const auto read = again.read_toml(to_toml(*resolved), "config.toml");
  TRI_CHECK(read.has_value(), "{}", read.has_value() ? "" : read.error().message);
  TRI_CHECK(again.resolve().value().config == config);
  return 0;
}
