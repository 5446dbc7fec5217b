// No step allocates: every way to the heap is counted in this program.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "contract/random_graph.h"
#include "contract/trial.h"
#include "nn/catalog.h"

namespace {
std::atomic<size_t> allocations{0};

void* counted(size_t bytes, std::align_val_t alignment = std::align_val_t{16}) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto step = static_cast<size_t>(alignment);
  void* memory = std::aligned_alloc(step, (bytes / step + 1) * step);
  if (memory == nullptr) std::abort();
  return memory;
}

// Not inlined: the compiler would see free() of what it takes for another operator new's.
[[gnu::noinline]] void released(void* memory) { std::free(memory); }
}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void* operator new[](size_t bytes, std::align_val_t alignment) { return counted(bytes, alignment); }
void operator delete(void* memory) noexcept { released(memory); }
void operator delete[](void* memory) noexcept { released(memory); }
void operator delete(void* memory, size_t) noexcept { released(memory); }
void operator delete[](void* memory, size_t) noexcept { released(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { released(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { released(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { released(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { released(memory); }

namespace tri::contract {
namespace {

void expect_no_allocation(const std::shared_ptr<const nn::Model>& model, exec::StepMode mode,
                          const std::string& what) {
  base::ThreadPool pool(2);
  exec::EngineOptions options;
  options.step.threads = 2;
  options.step.mode = mode;
  options.step.rule = optim::Rule::kAdamW;
  options.forms = {optim::WeightForm::kBf16x8, optim::StateForm::kInt8, 2};
  options.curvature.estimator =
      mode == exec::StepMode::kAfter ? exec::Estimator::kFisher : exec::Estimator::kHessian;
  options.curvature.iterations = 1;
  options.curvature.top = 2;
  const auto engine = engine_for(model, draw_problem(*model, 1, 4, 2), options);
  engine->train(0, {1}, pool);
  const size_t before = allocations.load();
  const struct mallinfo2 heap = mallinfo2();
  engine->train(0, {2}, pool);
  engine->train(0, {3}, pool);
  engine->curvature(0, 3, pool);
  const struct mallinfo2 after = mallinfo2();
  EXPECT_EQ(allocations.load(), before) << what;
  EXPECT_EQ(after.uordblks, heap.uordblks) << what;
  EXPECT_EQ(after.hblkhd, heap.hblkhd) << what;
}

TEST(Step, allocates_nothing) {
  { auto counts = std::make_unique<int>(1); }
  ASSERT_GT(allocations.load(), 0u) << "nothing is counted";
  for (const exec::StepMode mode : {exec::StepMode::kAfter, exec::StepMode::kFused}) {
    for (uint64_t seed = 0; seed < 10; ++seed)
      expect_no_allocation(random_network(seed), mode, "seed " + std::to_string(seed));
    for (const char* name : {"efficientnet-b0", "shufflenet-v2-cifar", "convnet"}) {
      nn::ModelOptions sizes;
      sizes.width_multiplier = 0.25;
      Result<nn::Model> built = nn::build(name, sizes);
      ASSERT_TRUE(built.has_value()) << built.error().message;
      expect_no_allocation(std::make_shared<const nn::Model>(*std::move(built)), mode, name);
    }
  }
}

}  // namespace
}  // namespace tri::contract
