#include "data/batch.h"

#include "base/check.h"

namespace tri::data {
namespace {

constexpr size_t kBoundary = 64;
size_t rounded(size_t bytes) { return (bytes + kBoundary - 1) / kBoundary * kBoundary; }

size_t x_bytes(tensor::Shape shape, size_t samples) {
  return rounded(samples * static_cast<size_t>(shape.elements()) * sizeof(float));
}

}  // namespace

size_t batch_bytes(tensor::Shape shape, size_t samples) {
  return x_bytes(shape, samples) + rounded(samples * sizeof(int32_t)) +
         rounded(samples * sizeof(uint64_t));
}

BatchSlots batch_slots(std::span<std::byte> memory, tensor::Shape shape, size_t samples) {
  TRI_CHECK(memory.size() >= batch_bytes(shape, samples), "{} bytes", memory.size());
  TRI_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kBoundary == 0);
  std::byte* labels = memory.data() + x_bytes(shape, samples);
  std::byte* ids = labels + rounded(samples * sizeof(int32_t));
  return {
      {reinterpret_cast<float*>(memory.data()), samples * static_cast<size_t>(shape.elements())},
      {reinterpret_cast<int32_t*>(labels), samples},
      {reinterpret_cast<uint64_t*>(ids), samples}};
}

}  // namespace tri::data
