#include "train/evaluation.h"

#include <algorithm>

#include "data/loader.h"

namespace tri::train {

size_t ring_bytes(const data::Dataset& set, int64_t samples) {
  size_t most = 0;
  for (const auto& source : {set.train, set.validation, set.test}) {
    if (!source) continue;
    most = std::max(most, data::Loader::ring_bytes(source->info(), static_cast<size_t>(samples)));
  }
  return most;
}

Result<Judgement> evaluate(const EvaluationRooms& rooms, std::shared_ptr<const data::Source> source,
                           const data::Normalisation& normalisation, bool confusion) {
  exec::Engine& engine = rooms.engine;
  const auto classes = static_cast<size_t>(engine.model().classes());
  const auto capacity = static_cast<size_t>(engine.forecast().eval_samples);
  const uint64_t count = source->info().count;
  data::Loader loader(
      std::move(source), data::SampleOrder::once(count),
      {.shape = engine.model().input_shape(), .normalisation = normalisation, .capacity = capacity},
      rooms.ring, rooms.pool);
  const exec::BatchRoom room = engine.batch(0);
  Judgement judgement;
  judgement.count = count;
  std::vector<float> logits;
  if (confusion) judgement.confusion.resize(classes * classes);
  uint64_t right = 0, near = 0;
  for (uint64_t seen = 0; seen < count;) {
    TRI_ASSIGN(const data::Batch batch, loader.take(capacity, {room.x, room.labels, room.samples}));
    const exec::StepReport& report =
        engine.evaluate(0, static_cast<int64_t>(batch.size()), rooms.pool);
    judgement.loss += report.loss.loss;
    right += static_cast<uint64_t>(report.loss.top1);
    near += static_cast<uint64_t>(report.loss.top5);
    seen += batch.size();
    if (!confusion) continue;
    logits.resize(batch.size() * classes);
    engine.logits(logits);
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto* const row = logits.data() + i * classes;
      const auto predicted = static_cast<size_t>(std::max_element(row, row + classes) - row);
      ++judgement.confusion[static_cast<size_t>(batch.labels[i]) * classes + predicted];
    }
  }
  const auto all = static_cast<double>(count);
  judgement.loss /= all;
  judgement.accuracy = static_cast<double>(right) / all;
  judgement.top5 = static_cast<double>(near) / all;
  return judgement;
}

}  // namespace tri::train
