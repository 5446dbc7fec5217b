// A network of one's own: a small residual network for 28 x 28 grey images, and what it consists
// of.
#include <tri/graph.h>

#include <cstdio>
#include <string>

namespace {

tri::Tensor residual_block(tri::Graph& graph, tri::Tensor x, const std::string& name) {
  const tri::ConvOptions conv{.out = graph.size(x).channels,
                              .kernel = 3,
                              .padding = 1,
                              .bias = false,
                              .init = tri::InitRule::kaiming_normal()};
  tri::Tensor y = graph.batch_norm(graph.conv(x, name + ".conv1", conv), name + ".bn1");
  y = graph.batch_norm(graph.conv(graph.relu(y), name + ".conv2", conv), name + ".bn2");
  return graph.relu(graph.add(y, x, name + ".add"));
}

}  // namespace

int main() {
  tri::Graph graph("small-residual", {.height = 28, .width = 28, .channels = 1});
  tri::Tensor x = graph.conv(graph.input(), "stem", {.out = 16, .kernel = 3, .padding = 1});
  x = residual_block(graph, x, "block1");
  x = graph.max_pool(x, {.kernel = 2});
  x = residual_block(graph, x, "block2");
  x = graph.dropout(graph.global_avg_pool(x), 0.1f);
  x = graph.linear(x, "classifier", {.out = 10});

  const tri::Result<tri::Network> network = graph.finish(x);
  if (!network) {
    std::fprintf(stderr, "%s\n", network.error().message.c_str());
    return 2;
  }
  for (const auto& [name, dims] : network->parameters()) {
    std::printf("%-24s", name.c_str());
    for (const int64_t dim : dims) std::printf(" %4lld", static_cast<long long>(dim));
    std::printf("\n");
  }
  std::printf("%s: %lld parameters, %lld classes\n", network->name().c_str(),
              static_cast<long long>(network->parameter_count()),
              static_cast<long long>(network->classes()));
  return 0;
}
