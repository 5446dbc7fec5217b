#include "tri/program.h"

#include <csignal>

#include "base/bytes.h"
#include "memory/malloc_policy.h"
#include "simd/target.h"

namespace tri {

std::string_view version() { return TRI_VERSION; }

Result<void> apply_environment() {
  memory::pin_malloc();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that grew too large is then an error like a full disk
  return simd::force_target_from_environment();
}

std::string bytes_text(uint64_t bytes) { return base::format_bytes(bytes); }

}  // namespace tri
