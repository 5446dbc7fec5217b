// Every kind of operation that `bench kernels` times runs on its made-up numbers.
#include "train/kernel_passes.h"

#include <gtest/gtest.h>

#include "simd/target.h"

namespace tri::train {
namespace {

using numeric::Format;
using ops::OpKind;

TEST(KernelPasses, RunAndCountWhatMustPass) {
  base::ThreadPool pool(2);
  const tensor::Shape image{6, 5, 8};
  ops::Attributes conv, pooling, half, pairs, drop;
  half.begin = half.count = 4;
  pairs.groups = 2;
  drop.rate = 0.2f;
  conv.out_channels = 8;
  conv.kernel_h = conv.kernel_w = pooling.kernel_h = pooling.kernel_w = 3;
  conv.padding_h = conv.padding_w = 1;
  const KernelShape shapes[] = {
      {OpKind::kConv2d, conv, image, 1, 4},     {OpKind::kMaxPool, pooling, image, 1, 4},
      {OpKind::kAvgPool, pooling, image, 1, 4}, {OpKind::kGlobalAvgPool, {}, image, 1, 4},
      {OpKind::kAdd, {}, image, 2, 4},          {OpKind::kConcat, {}, image, 2, 4},
      {OpKind::kSplit, half, image, 1, 4},      {OpKind::kChannelShuffle, pairs, image, 1, 4},
      {OpKind::kDropout, drop, image, 1, 4},
  };
  for (const Format storage : {Format::kF32, Format::kBf16, Format::kF16}) {
    for (const KernelShape& shape : shapes) {
      const std::string name(ops::name(shape.kind));
      const std::vector<KernelPass> passes = operation_passes(name, shape, storage, pool);
      EXPECT_EQ(passes.size(), shape.kind == OpKind::kConv2d ? 3u : 2u) << name;
      for (const KernelPass& pass : passes) {
        pass.run();
        EXPECT_GT(pass.bytes, 0) << pass.kernel;
        EXPECT_EQ(pass.flops > 0, shape.kind == OpKind::kConv2d) << pass.kernel;
        EXPECT_EQ(pass.multiplies_bf16,
                  pass.flops > 0 && storage == Format::kBf16 && simd::multiplies_bf16());
      }
    }
  }
}

}  // namespace
}  // namespace tri::train
