// A network of one's own, trained inside a number of bytes: a small residual network for images of
// any size. Usage: own_network [DATA [MEMORY]], such as own_network fashion-mnist 64MiB
#include <tri/config.h>
#include <tri/models.h>
#include <tri/plan.h>
#include <tri/session.h>
#include <unistd.h>

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

// The data say how large images are and how many classes there are.
tri::Tensor small_residual(tri::Graph& graph, const tri::ModelOptions& options) {
  tri::Tensor x = graph.conv(graph.input(), "stem", {.out = 16, .kernel = 3, .padding = 1});
  x = residual_block(graph, x, "block1");
  x = graph.max_pool(x, {.kernel = 2});
  x = residual_block(graph, x, "block2");
  x = graph.dropout(graph.global_avg_pool(x), options.dropout.value_or(0.1f));
  return graph.linear(x, "classifier", {.out = options.classes});
}

int fail(const tri::Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (const auto added = tri::add_model("small-residual", small_residual); !added) {
    return fail(added.error());
  }
  tri::ConfigBuilder builder;
  const tri::Settings settings = {{"model", "small-residual"},
                                  {"data", argc > 1 ? argv[1] : "synthetic:4,28,2000"},
                                  {"memory", argc > 2 ? argv[2] : "32MiB"},
                                  {"batch", "64"},
                                  {"epochs", "2"}};
  for (const auto& [key, text] : settings) {
    if (const auto set = builder.set(key, text); !set) return fail(set.error());
  }
  const tri::Result<tri::ResolvedConfig> config = builder.resolve();
  if (!config) return fail(config.error());

  // What it will need is known before anything is read or taken.
  const tri::Result<tri::MemoryPlan> plan = tri::plan_memory(*config);
  if (!plan) return fail(plan.error());
  if (!plan->fits) return fail({tri::ErrorCode::kDoesNotFit, tri::refusal(*plan)});
  std::printf("%lld parameters; the process needs %llu of %llu bytes with a batch of %lld\n",
              static_cast<long long>(plan->params),
              static_cast<unsigned long long>(plan->process_peak_bytes),
              static_cast<unsigned long long>(plan->ceiling_bytes),
              static_cast<long long>(plan->batch));

  const tri::Result<tri::TrainOutcome> trained = tri::run_training(*config, {STDERR_FILENO});
  if (!trained) return fail(trained.error());
  std::printf("%s\n", trained->summary.c_str());
  if (trained->stopped) return fail(*trained->stopped);
  return 0;
}
