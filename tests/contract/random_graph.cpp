#include "contract/random_graph.h"

#include <string>
#include <vector>

#include "base/check.h"
#include "base/philox.h"
#include "tri/graph.h"

namespace tri::contract {
namespace {

class Drawing {
 public:
  explicit Drawing(uint64_t seed)
      : random_(seed, base::Purpose::kSynthetic),
        excited_(seed >= kExcitedSeeds),
        graph_("random", {.height = (excited_ ? 8 : 3) + random_.below(4),
                          .width = (excited_ ? 8 : 3) + random_.below(4),
                          .channels = 1 + random_.below(4)}) {}

  Result<Network> draw() {
    Tensor x = graph_.input();
    const uint32_t stages = 1 + random_.below(2);
    for (uint32_t stage = 0; stage < stages; ++stage) x = this->stage(enter(x));
    return graph_.finish(head(x));
  }

 private:
  static constexpr uint32_t kSqueezeExcite = 5;

  std::string name() { return "n" + std::to_string(++names_); }
  bool coin() { return random_.below(2) == 0; }

  // Into a stage: an even number of channels, perhaps fewer pixels; sometimes the input is touched
  // before the first weight layer.
  Tensor enter(Tensor x) {
    if (random_.below(6) == 0) x = activation(x);
    if (random_.below(6) == 0) x = graph_.batch_norm(x, name());
    const ImageSize size = graph_.size(x);
    const bool shrink = coin() && size.height > 2 && size.width > 2;
    const int64_t out = 2 * (1 + static_cast<int64_t>(random_.below(4)));
    constexpr int64_t kKernels[] = {2, 3, 3, 4, 5, 7};
    const int64_t kernel = kKernels[random_.below(6)];
    return graph_.conv(x, name(),
                       {.out = out,
                        .kernel = kernel,
                        .stride = shrink ? 2 : 1,
                        .padding = kernel / 2,
                        .bias = coin()});
  }

  Tensor activation(Tensor x) {
    switch (random_.below(4)) {
      case 0:
        return graph_.relu(x);
      case 1:
        return graph_.relu6(x);
      case 2:
        return graph_.silu(x);
      default:
        return graph_.sigmoid(x);
    }
  }

  Tensor conv(Tensor x, int64_t kernel, int64_t groups) {
    return graph_.conv(x, name(),
                       {.out = graph_.size(x).channels,
                        .kernel = kernel,
                        .padding = kernel / 2,
                        .groups = groups,
                        .bias = coin()});
  }

  // A layer as networks have it: conv, perhaps norm, perhaps activation.
  Tensor layer(Tensor x) {
    const int64_t channels = graph_.size(x).channels;
    switch (random_.below(4)) {
      case 0:
        x = conv(x, coin() ? 3 : 5, channels);
        break;
      case 1:
        x = conv(x, 3, channels % 2 == 0 ? 2 : 1);
        break;
      case 2:
        x = conv(x, coin() ? 3 : 5, 1);
        break;
      default:
        x = conv(x, 1, 1);
    }
    if (random_.below(3) > 0) x = graph_.batch_norm(x, name());
    if (random_.below(3) > 0) x = activation(x);
    return x;
  }

  Tensor squeeze_excite(Tensor x, Tensor seen) {
    if (excited_) x = seen = graph_.silu(graph_.batch_norm(x, name()));
    Tensor f = graph_.global_avg_pool(seen);
    if (coin()) f = layer(f);
    if (random_.below(4) > 0) f = graph_.sigmoid(f);
    return graph_.scale(x, f);
  }

  Tensor shuffled_halves(Tensor x) {
    const int64_t half = graph_.size(x).channels / 2;
    const Tensor right = graph_.split(x, half, half);
    const Tensor left = coin() ? graph_.split(x, 0, half) : right;
    const Tensor joined = graph_.concat({left, layer(right)});
    return coin() ? graph_.channel_shuffle(joined, 2) : joined;
  }

  // One more tensor of the same shape.
  Tensor step(Tensor a, Tensor b) {
    switch (excited_ && coin() ? kSqueezeExcite : random_.below(12)) {
      case 0:
        return graph_.batch_norm(a, name());
      case 1:
        return activation(a);
      case 2:
      case 3:
      case 4:
        return graph_.add(a, b);
      case kSqueezeExcite:
        return squeeze_excite(a, b);
      case 6:
        return shuffled_halves(a);
      case 7:
        return coin() ? graph_.dropout(a, 0.3f) : graph_.stochastic_depth(a, 0.4f);
      case 8: {
        const int64_t kernel = coin() ? 3 : 5;
        return coin() ? graph_.max_pool(
                            a, {.kernel = kernel, .stride = Extent(1), .padding = kernel / 2})
                      : graph_.avg_pool(a, {.kernel = kernel,
                                            .stride = Extent(1),
                                            .padding = kernel / 2,
                                            .count_include_pad = coin()});
      }
      default:
        return layer(a);
    }
  }

  // Up to ten tensors of one shape, each made of any before it; what nobody read is summed up.
  Tensor stage(Tensor x) {
    struct Made {
      Tensor tensor;
      bool read = false;
    };
    std::vector<Made> pool{{x}};
    const auto pick = [&]() -> Made& {
      // The newest as often as all others together.
      const auto count = static_cast<uint32_t>(pool.size());
      return coin() ? pool.back() : pool[random_.below(count)];
    };
    const uint32_t steps = 2 + random_.below(9);
    for (uint32_t i = 0; i < steps; ++i) {
      Made &a = pick(), &b = pick();
      const Tensor made = step(a.tensor, b.tensor);
      a.read = true;
      pool.push_back({made});
    }
    Tensor sum = pool.back().tensor;
    for (size_t i = 0; i + 1 < pool.size(); ++i)
      if (!pool[i].read)
        sum = coin() ? graph_.add(sum, pool[i].tensor) : graph_.add(pool[i].tensor, sum);
    return sum;
  }

  Tensor head(Tensor x) {
    constexpr int64_t kClasses = 5;
    if (random_.below(4) == 0) {
      x = graph_.conv(x, name(), {.out = kClasses});
      return graph_.global_avg_pool(activation(x));
    }
    x = coin() ? graph_.flatten(graph_.global_avg_pool(x)) : graph_.flatten(x);
    if (random_.below(3) == 0) x = activation(x);
    if (random_.below(3) == 0) x = graph_.dropout(x, 0.25f);
    if (coin()) x = graph_.relu(graph_.linear(x, name(), {.out = 7}));
    return graph_.linear(x, name(), {.out = kClasses, .bias = coin()});
  }

  base::Stream random_;
  bool excited_;
  int64_t names_ = 0;
  Graph graph_;
};

}  // namespace

std::shared_ptr<const nn::Model> random_network(uint64_t seed) {
  Result<Network> network = Drawing(seed).draw();
  TRI_CHECK(network.has_value(), "seed {}: {}", seed, network.error().message);
  return std::make_shared<const nn::Model>(nn::model_of(*network));
}

}  // namespace tri::contract
