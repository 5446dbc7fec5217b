#include "train/process_memory.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "memory/probes.h"

namespace tri::train {

Result<uint64_t> process_base_bytes(size_t threads) {
  base::ThreadPool pool(threads);
  pool.run(threads, [](size_t, size_t) {});
  const memory::Reading held = memory::Probes().resident();
  if (!held.bytes) return unexpected(ErrorCode::kFailed, held.why_unknown);
  return *held.bytes;
}

uint64_t process_peak_bytes() { return memory::Probes().peak_resident().bytes.value_or(0); }

}  // namespace tri::train
