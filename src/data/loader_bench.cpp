// What a CIFAR-sized image costs on its way into a batch, and what is left of it at the step.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "data/dataset.h"
#include "data/loader.h"

namespace tri::data {
namespace {

const tensor::Shape kCifar{32, 32, 3};
const Normalisation kStatistics{{0.49f, 0.48f, 0.45f}, {0.25f, 0.24f, 0.26f}};

void transform_cifar(benchmark::State& state) {
  const int64_t side = state.range(0);
  const tensor::Shape dst{side, side, 3};
  const Transform transform(kCifar, dst, kStatistics, {.crop = 4, .flip = true, .cutout = 8}, 1);
  const std::vector<uint8_t> pixels(3072, 99);
  std::vector<float> out(static_cast<size_t>(dst.elements())), scratch(transform.scratch_floats());
  uint64_t index = 0;
  for (auto _ : state) {
    transform.apply(pixels.data(), 0, index++, out.data(), scratch);
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(transform_cifar)->Arg(32)->Arg(64)->Arg(224);

void read_synthetic(benchmark::State& state) {
  const auto set = open_dataset("synthetic");
  Record record;
  uint64_t index = 0;
  for (auto _ : state) {
    if (!set->train->read(index++ % 10000, record)) state.SkipWithError("read");
  }
}
BENCHMARK(read_synthetic);

// A set of files named by TRIACCEL_BENCH_DATA, such as cifar10:DIR.
void read_files(benchmark::State& state) {
  const char* spec = std::getenv("TRIACCEL_BENCH_DATA");
  const auto set = open_dataset(spec != nullptr ? spec : "fashion-mnist");
  if (!set) return state.SkipWithError(set.error().message.c_str());
  const auto order = SampleOrder::shuffled(set->train->info().count, 1);
  Record record;
  uint64_t position = 0;
  for (auto _ : state) {
    if (!set->train->read(order.at(position++).index, record)) state.SkipWithError("read");
  }
}
BENCHMARK(read_files);

}  // namespace
}  // namespace tri::data
