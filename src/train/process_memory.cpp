#include "train/process_memory.h"

#include <map>
#include <mutex>

#include "base/thread_pool.h"
#include "memory/probes.h"

namespace tri::train {

Result<uint64_t> process_base_bytes(size_t threads) {
  // What many plans leave on the heap of a process that makes them is not held by the one to come.
  static std::mutex mutex;
  static std::map<size_t, uint64_t> known;
  const std::scoped_lock lock(mutex);
  if (const auto found = known.find(threads); found != known.end()) return found->second;
  base::ThreadPool pool(threads);
  pool.run(threads, [](size_t, size_t) {});
  const memory::Reading held = memory::Probes().resident();
  if (!held.bytes) return unexpected(ErrorCode::kFailed, held.why_unknown);
  return known[threads] = *held.bytes;
}

uint64_t process_peak_bytes() { return memory::Probes().peak_resident().bytes.value_or(0); }

}  // namespace tri::train
