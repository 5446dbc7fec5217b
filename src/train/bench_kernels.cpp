#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/clock.h"
#include "train/kernel_passes.h"
#include "train/machine_limits.h"
#include "tri/bench.h"

namespace tri {
namespace {

using numeric::Format;
using ops::OpKind;
using train::KernelPass;
using train::KernelShape;

constexpr Format kStorages[] = {Format::kF32, Format::kBf16, Format::kF16};

struct ConvCase {
  int64_t in, out, map, kernel, stride, samples;
};
// The 3x3 layers of ResNet-18 at 32 pixels and batch 96 and of its CIFAR form: arithmetic is their
// only limit.
constexpr ConvCase kResidual[] = {
    {64, 64, 8, 3, 1, 96},   {64, 128, 8, 3, 2, 96},  {128, 128, 4, 3, 1, 96},
    {128, 256, 4, 3, 2, 96}, {256, 256, 2, 3, 1, 96}, {256, 512, 2, 3, 2, 96},
    {512, 512, 1, 3, 1, 96}, {64, 64, 32, 3, 1, 24},  {512, 512, 4, 3, 1, 96}};
// Stems, and 1x1 layers of the mobile networks: below the roofline.
constexpr ConvCase kOthers[] = {{3, 64, 32, 7, 2, 96},    {3, 32, 224, 3, 2, 16},
                                {16, 96, 16, 1, 1, 96},   {96, 24, 8, 1, 1, 96},
                                {24, 144, 56, 1, 1, 16},  {144, 40, 28, 1, 1, 16},
                                {320, 1280, 1, 1, 1, 96}, {320, 1280, 7, 1, 1, 16}};
constexpr ConvCase kDepthwise[] = {{32, 32, 112, 3, 1, 0},  {96, 96, 112, 3, 2, 0},
                                   {144, 144, 56, 3, 1, 0}, {1152, 1152, 7, 3, 1, 0},
                                   {144, 144, 56, 5, 2, 0}, {240, 240, 28, 5, 1, 0},
                                   {672, 672, 14, 5, 1, 0}};

struct PoolCase {
  std::string_view name;
  OpKind kind;
  int64_t channels, map, kernel, stride, padding;
};
constexpr PoolCase kPools[] = {{"max pool", OpKind::kMaxPool, 64, 112, 3, 2, 1},
                               {"max pool", OpKind::kMaxPool, 64, 16, 3, 2, 1},
                               {"average pool", OpKind::kAvgPool, 128, 28, 2, 2, 0},
                               {"global average pool", OpKind::kGlobalAvgPool, 1280, 7, 1, 1, 0}};

KernelShape conv_shape(const ConvCase& c, int64_t groups) {
  ops::Attributes attr;
  attr.out_channels = c.out;
  attr.kernel_h = attr.kernel_w = c.kernel;
  attr.stride_h = attr.stride_w = c.stride;
  attr.padding_h = attr.padding_w = c.kernel / 2;
  attr.groups = groups;
  return {OpKind::kConv2d, attr, {c.map, c.map, c.in}, 1, c.samples};
}

// Times passes and sets them against the machine as it was just before and just after.
class Bench {
 public:
  Bench(size_t threads, const std::string& only,
        const std::function<void(const KernelBench&)>& show)
      : pool_(threads), only_(only), show_(show) {}

  base::ThreadPool& pool() { return pool_; }
  bool found() const { return found_; }

  // The passes of one kernel, whose memory is made only if one of them is wanted.
  template <class Make>
  void add(const std::string& kernel, const std::string& shape, std::string_view storage,
           Make make) {
    constexpr std::string_view kPasses[] = {"forward", "backward", "backward-data",
                                            "backward-weights", "update"};
    if (std::ranges::none_of(kPasses, [&](std::string_view pass) {
          return wanted(fmt::format("{} {}", kernel, pass), shape, storage);
        }))
      return;
    for (const KernelPass& pass : make())
      if (wanted(pass.kernel, shape, storage)) time(pass, shape, storage);
  }

 private:
  bool wanted(const std::string& pass, const std::string& shape, std::string_view storage) const {
    return fmt::format("{}, {}, {}", pass, shape, storage).find(only_) != std::string::npos;
  }

  void time(const KernelPass& pass, const std::string& shape, std::string_view storage) {
    found_ = true;
    const auto peak = [&] {
      return pass.multiplies_bf16 ? train::pair_peak_gflops(pool_) : train::fma_peak_gflops(pool_);
    };
    const auto limit = [&] {
      if (pass.bytes == 0) return peak();
      const double copy = copy_.gbytes_per_second(pool_);
      if (pass.flops == 0) return copy;
      return std::min(peak(), pass.flops / pass.bytes * copy);
    };
    KernelBench done;
    done.kernel = pass.kernel;
    done.shape = shape;
    done.storage = storage;
    done.computes = pass.flops > 0;
    const double before = limit();
    done.ms = median_ms(pass);
    done.limit = std::max(before, limit());
    done.rate = 1e-6 * (done.computes ? pass.flops : pass.bytes) / done.ms;
    done.fraction = done.rate / done.limit;
    show_(done);
  }

  static double median_ms(const KernelPass& pass) {
    std::array<double, 5> times;
    pass.run();
    for (double& time : times) {
      const base::Stopwatch watch;
      pass.run();
      time = 1e3 * watch.seconds();
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  base::ThreadPool pool_;
  const std::string& only_;
  bool found_ = false;
  const std::function<void(const KernelBench&)>& show_;
  train::CopyBandwidth copy_;
};

void bench_convolutions(Bench& bench, Format storage) {
  const std::string_view name = numeric::spec(storage).name;
  const auto add = [&](const ConvCase& c, int64_t groups, std::string_view kind, bool moves) {
    const std::string kernel = fmt::format("{} {}x{}", kind, c.kernel, c.kernel);
    const std::string text = fmt::format("{}->{} {}x{}/{}{}", c.in, c.out, c.map, c.map, c.stride,
                                         c.samples > 0 ? fmt::format(" batch {}", c.samples) : "");
    bench.add(kernel, text, name, [&] {
      auto passes = train::operation_passes(kernel, conv_shape(c, groups), storage, bench.pool());
      for (KernelPass& pass : passes)
        if (!moves) pass.bytes = 0;
      return passes;
    });
  };
  for (const ConvCase& c : kResidual) add(c, 1, "conv", false);
  for (const ConvCase& c : kOthers) add(c, 1, "conv", true);
  for (const ConvCase& c : kDepthwise) add(c, c.in, "depthwise", true);
  for (const auto& [in, out] : {std::pair{512, 1000}, std::pair{1280, 1000}}) {
    ops::Attributes attr;
    attr.out_channels = out;
    bench.add("linear", fmt::format("{}->{} batch 96", in, out), name, [&] {
      return train::operation_passes("linear", {OpKind::kLinear, attr, {1, 1, in}, 1, 96}, storage,
                                     bench.pool());
    });
  }
}

void bench_memory_bound(Bench& bench, Format storage) {
  const std::string_view name = numeric::spec(storage).name;
  for (const tensor::Shape& shape : {tensor::Shape{32, 32, 64}, tensor::Shape{7, 7, 960}}) {
    const std::string text = fmt::format("{}x{}x{}", shape.h, shape.w, shape.c);
    bench.add("batch norm", text, name,
              [&] { return train::norm_passes(shape, storage, bench.pool()); });
    const auto operation = [&](const std::string& kernel, OpKind kind, const ops::Attributes& attr,
                               int64_t inputs) {
      bench.add(kernel, text, name, [&] {
        return train::operation_passes(kernel, {kind, attr, shape, inputs, 0}, storage,
                                       bench.pool());
      });
    };
    operation("activation", OpKind::kAdd, {}, 1);
    operation("residual add", OpKind::kAdd, {}, 2);
    operation("concat", OpKind::kConcat, {}, 2);
    ops::Attributes half, pairs, drop;
    half.begin = half.count = shape.c / 2;
    pairs.groups = 2;
    drop.rate = 0.2f;
    operation("split", OpKind::kSplit, half, 1);
    operation("channel shuffle", OpKind::kChannelShuffle, pairs, 1);
    operation("dropout", OpKind::kDropout, drop, 1);
  }
  for (const PoolCase& c : kPools) {
    ops::Attributes attr;
    attr.kernel_h = attr.kernel_w = c.kernel;
    attr.stride_h = attr.stride_w = c.stride;
    attr.padding_h = attr.padding_w = c.padding;
    const std::string kernel(c.name);
    bench.add(
        kernel,
        fmt::format("{}x{}x{} {}x{}/{}", c.map, c.map, c.channels, c.kernel, c.kernel, c.stride),
        name, [&] {
          return train::operation_passes(kernel, {c.kind, attr, {c.map, c.map, c.channels}, 1, 0},
                                         storage, bench.pool());
        });
  }
}

void bench_updates(Bench& bench) {
  using optim::StateForm;
  using optim::WeightForm;
  struct Form {
    WeightForm weights;
    StateForm state;
  };
  for (const optim::Rule rule : {optim::Rule::kSgd, optim::Rule::kAdamW})
    for (const Form& form :
         {Form{WeightForm::kF32, StateForm::kF32}, Form{WeightForm::kF32AndBf16, StateForm::kF32},
          Form{WeightForm::kBf16x8, StateForm::kInt8}})
      bench.add(
          std::string(optim::name(rule)), "16777216",
          fmt::format("{} {}", optim::name(form.weights), optim::name(form.state)), [&] {
            return std::vector{train::update_pass(rule, form.weights, form.state, bench.pool())};
          });
}

}  // namespace

Result<void> bench_kernels(size_t threads, const std::string& only,
                           const std::function<void(const KernelBench&)>& show) {
  Bench bench(threads, only, show);
  for (const Format storage : kStorages) bench_convolutions(bench, storage);
  for (const Format storage : kStorages) bench_memory_bound(bench, storage);
  bench_updates(bench);
  if (!bench.found())
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("no kernel has '{}' in its name, shape or storage; --only takes "
                                  "part of a line, such as 'conv 7x7' or 'bf16'",
                                  only));
  return {};
}

}  // namespace tri
