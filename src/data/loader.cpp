#include "data/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "base/check.h"
#include "base/clock.h"

namespace tri::data {

size_t Loader::ring_bytes(const SourceInfo& info, size_t capacity) {
  return capacity * static_cast<size_t>(info.shape.elements());
}

Loader::Loader(std::shared_ptr<const Source> source, SampleOrder order, LoaderOptions options,
               std::span<std::byte> ring, base::ThreadPool& pool)
    : source_(std::move(source)),
      order_(order),
      options_(std::move(options)),
      transform_(source_->info().shape, options_.shape, options_.normalisation, options_.augment,
                 options_.seed),
      bytes_(static_cast<size_t>(source_->info().shape.elements())),
      ring_(reinterpret_cast<uint8_t*>(ring.data()), ring.size()),
      pool_(pool),
      scratch_(transform_.scratch_floats() * pool.threads()),
      taken_(options_.position),
      claimed_(options_.position),
      ready_(options_.position),
      staged_(options_.capacity),
      labels_(options_.capacity) {
  TRI_CHECK(options_.capacity >= 1 && options_.readers >= 1, "capacity = {}, readers = {}",
            options_.capacity, options_.readers);
  TRI_CHECK(ring.size() >= ring_bytes(source_->info(), options_.capacity), "{} bytes", ring.size());
  start_readers();
}

// As many as the system gives; none at all is told by take().
void Loader::start_readers() {
  try {
    for (size_t i = 0; i < options_.readers; ++i) readers_.emplace_back([this] { read_ahead(); });
  } catch (const std::system_error& error) {
    if (!readers_.empty()) return;
    failed_ = options_.position;
    failure_ = {ErrorCode::kFailed,
                fmt::format("no thread can be started to read images: {}; lift the limit on "
                            "threads or memory (ulimit -u, -v)",
                            error.what())};
  }
}

Loader::~Loader() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wanted_.notify_all();
  for (std::thread& reader : readers_) reader.join();
}

void Loader::read_ahead() {
  Record record;
  std::unique_lock lock(mutex_);
  while (true) {
    wanted_.wait(lock, [&] {
      return stopping_ ||
             (!failure_ && claimed_ < order_.end() && claimed_ - taken_ < options_.capacity);
    });
    if (stopping_) return;
    const uint64_t position = claimed_++;
    lock.unlock();
    const Result<void> done = source_->read(order_.at(position).index, record);
    if (done) std::memcpy(slot(position), record.pixels.data(), bytes_);
    lock.lock();
    if (!done && position < failed_) {
      failed_ = position;
      failure_ = done.error();
    }
    // A failed position counts as staged, so that take() reaches it and returns its error.
    stage(position, record);
  }
}

void Loader::stage(uint64_t position, const Record& record) {
  labels_[position % options_.capacity] = record.label;
  staged_[position % options_.capacity] = 1;
  // A full ring ends at the slot it began with, so the flag is cleared in passing.
  while (std::exchange(staged_[ready_ % options_.capacity], uint8_t{0}) != 0) ++ready_;
  arrived_.notify_one();
}

Result<Batch> Loader::take(size_t samples, const BatchSlots& slots) {
  TRI_CHECK(samples <= options_.capacity, "{} of {}", samples, options_.capacity);
  samples = std::min<uint64_t>(samples, order_.end() - taken_);
  TRI_CHECK(slots.labels.size() >= samples && slots.ids.size() >= samples &&
                slots.x.size() >= samples * static_cast<size_t>(options_.shape.elements()),
            "{} samples", samples);
  base::Stopwatch watch;
  {
    std::unique_lock lock(mutex_);
    // Past a failure nothing is read; positions before it are claimed already and will arrive.
    arrived_.wait(lock, [&] { return ready_ >= std::min(taken_ + samples, failed_); });
    if (failed_ < taken_ + samples) return unexpected(*failure_);
  }
  seconds_.waiting += watch.seconds();
  watch.restart();
  finish(samples, slots);
  seconds_.finishing += watch.seconds();
  const Batch batch{slots.x.first(samples * static_cast<size_t>(options_.shape.elements())),
                    slots.labels.first(samples), slots.ids.first(samples), taken_};
  {
    const std::scoped_lock lock(mutex_);
    taken_ += samples;
  }
  wanted_.notify_all();
  return batch;
}

void Loader::finish(size_t samples, const BatchSlots& slots) {
  constexpr size_t kPerTile = 4;  // small images take microseconds, a tile should be worth a claim
  const auto elements = static_cast<size_t>(options_.shape.elements());
  const size_t scratch = transform_.scratch_floats();
  pool_.run((samples + kPerTile - 1) / kPerTile, [&](size_t tile, size_t worker) {
    for (size_t i = tile * kPerTile; i < std::min(samples, (tile + 1) * kPerTile); ++i) {
      const uint64_t position = taken_ + i;
      const Sample sample = order_.at(position);
      slots.labels[i] = labels_[position % options_.capacity];
      slots.ids[i] = sample_id(sample);
      transform_.apply(slot(position), sample.epoch, sample.index, slots.x.data() + i * elements,
                       {scratch_.data() + worker * scratch, scratch});
    }
  });
}

}  // namespace tri::data
