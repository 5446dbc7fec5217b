// Names, shapes and order of every model's parameters against lists written from torchvision.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "golden/golden_file.h"

namespace tri::golden {
namespace {

struct List {
  std::string model;
  double width = 0;
  std::vector<std::string> parameters, running;  // "NAME DIMS"
};

List read_list(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  const size_t mark = stem.rfind("_w");
  List list;
  list.model = stem.substr(0, mark);
  list.width = std::stod(stem.substr(mark + 2));
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) {
    const bool running = line.find(".running_") != std::string::npos;
    (running ? list.running : list.parameters).push_back(line);
  }
  return list;
}

TEST(ModelParameters, AreTorchvisions) {
  std::set<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "parameters")) {
    SCOPED_TRACE(entry.path().filename().string());
    const List list = read_list(entry.path());
    models.insert(list.model);
    const Result<nn::Model> model =
        nn::build(list.model, {.classes = 1000, .width_multiplier = list.width});
    ASSERT_TRUE(model) << model.error().message;

    std::vector<std::string> parameters, running;
    for (const nn::Parameter& parameter : model->parameters)
      parameters.push_back(fmt::format("{} {}", parameter.name, fmt::join(parameter.dims, "x")));
    for (const nn::Node& node : model->nodes) {
      if (node.kind != ops::OpKind::kBatchNorm) continue;
      running.push_back(fmt::format("{}.running_mean {}", node.name, node.shape.c));
      running.push_back(fmt::format("{}.running_var {}", node.name, node.shape.c));
    }
    EXPECT_EQ(parameters, list.parameters);
    EXPECT_EQ(running, list.running);
  }
  EXPECT_EQ(models.size(), nn::catalog().size());
}

// Counts that torchvision publishes with its weights.
TEST(ModelParameters, CountsAreThePublishedOnes) {
  const std::pair<const char*, int64_t> published[] = {{"resnet18", 11689512},
                                                       {"efficientnet-b0", 5288548},
                                                       {"mobilenet-v2", 3504872},
                                                       {"shufflenet-v2", 2278604},
                                                       {"squeezenet", 1235496}};
  for (const auto& [name, count] : published) {
    const Result<nn::Model> model = nn::build(name, {.height = 224, .width = 224, .classes = 1000});
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->parameter_elements(), count) << name;
  }
}

}  // namespace
}  // namespace tri::golden
