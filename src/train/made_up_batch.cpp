#include "train/made_up_batch.h"

#include "base/philox.h"

namespace tri::train {

void make_up(const exec::BatchRoom& room, int64_t classes, uint64_t seed) {
  base::Stream random(seed, base::Purpose::kSynthetic);
  for (float& pixel : room.x) pixel = 2 * random.uniform() - 1;
  for (size_t i = 0; i < room.labels.size(); ++i) {
    room.labels[i] = static_cast<int32_t>(random.below(static_cast<uint32_t>(classes)));
    room.samples[i] = i;
  }
}

}  // namespace tri::train
