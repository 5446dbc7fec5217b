#pragma once
// Room: data. From a Source to batches, one batch ahead: background threads read and decode records
// as bytes into a ring of slots; take() turns the next ones into numbers on the pool.
//
// Bytes wait in the ring, not floats: a batch in waiting then costs a quarter of the memory, and
// what is left to do at the step (crop, mirror, normalise: microseconds per image) is spread over
// the pool. A ring instead of two buffers: the batch size may change from step to step.
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "data/batch.h"
#include "data/sample_order.h"
#include "data/source.h"
#include "data/transform.h"

namespace tri::data {

struct LoaderOptions {
  tensor::Shape shape;  // what the network takes; channels: those of the source, or any for grey
  Normalisation normalisation;
  Augment augment = {};   // none for evaluation
  uint64_t seed = 0;      // of the augmentation
  uint64_t position = 0;  // where in the order to begin
  size_t capacity = 0;    // the largest batch that take() will be asked for, >= 1
  size_t readers = 1;     // background threads; more help only where decoding is slow
};

// What take() spent since the loader began: waiting for records, and finishing them on the pool.
struct LoaderSeconds {
  double waiting = 0, finishing = 0;
};

class Loader {
 public:
  // Bytes of the ring, for plans. The rest of a Loader is a few rows of one image per thread.
  static size_t ring_bytes(const SourceInfo& info, size_t capacity);

  // `ring` of ring_bytes() and `pool` must outlive the loader. Reading begins at once.
  Loader(std::shared_ptr<const Source> source, SampleOrder order, LoaderOptions options,
         std::span<std::byte> ring, base::ThreadPool& pool);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Position of the first sample that has not been taken: all a resumed run needs.
  uint64_t position() const { return taken_; }

  // The next `samples` samples, or as many as are left of an order that ends; none at its end. What
  // comes out depends on the order, the source and the options, not on threads or timing. A record
  // that cannot be read is the error of the batch it belongs to, and of all later ones.
  // REQUIRES: samples <= capacity; called by one thread, not from inside the pool.
  Result<Batch> take(size_t samples, const BatchSlots& slots);

  // By the thread that takes.
  const LoaderSeconds& seconds() const { return seconds_; }

 private:
  void start_readers();
  void read_ahead();
  void stage(uint64_t position, const Record& record);
  void finish(size_t samples, const BatchSlots& slots);
  uint8_t* slot(uint64_t position) { return ring_.data() + position % options_.capacity * bytes_; }

  const std::shared_ptr<const Source> source_;
  const SampleOrder order_;
  const LoaderOptions options_;
  const Transform transform_;
  const size_t bytes_;  // of one record
  std::span<uint8_t> ring_;
  base::ThreadPool& pool_;
  std::vector<float> scratch_;  // transform_.scratch_floats() per pool thread
  LoaderSeconds seconds_;

  uint64_t taken_;  // written by take() under the lock
  std::mutex mutex_;
  std::condition_variable wanted_, arrived_;
  uint64_t claimed_;              // first position that no reader has begun
  uint64_t ready_;                // all positions before it have been staged
  std::vector<uint8_t> staged_;   // per slot: staged, but behind one that is not
  std::vector<int32_t> labels_;   // per slot
  std::optional<Error> failure_;  // of the lowest position that failed ...
  uint64_t failed_ = UINT64_MAX;  // ... which is this one
  bool stopping_ = false;
  std::vector<std::thread> readers_;  // last: they use all of the above
};

}  // namespace tri::data
