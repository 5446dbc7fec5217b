#include "nn/init.h"

#include <algorithm>

#include "base/check.h"
#include "base/philox.h"

namespace tri::nn {
namespace {

void draw_uniform(base::Stream stream, const Init& init, std::span<float> values) {
  for (float& value : values) {
    const double unit = 2.0 * static_cast<double>(stream.uniform()) - 1.0;
    value = static_cast<float>(init.center + init.spread * unit);
  }
}

void draw_normal(base::Stream stream, const Init& init, std::span<float> values) {
  const auto scaled = [&](double normal) {
    return static_cast<float>(init.center + init.spread * normal);
  };
  for (size_t i = 0; i < values.size(); i += 2) {
    const auto [first, second] = stream.normal_pair();
    values[i] = scaled(first);
    if (i + 1 < values.size()) values[i + 1] = scaled(second);
  }
}

}  // namespace

void draw_initial(const Model& model, size_t index, uint64_t seed, std::span<float> values) {
  TRI_CHECK(index < model.parameters.size(), "index = {}", index);
  const Parameter& parameter = model.parameters[index];
  TRI_CHECK(values.size() == static_cast<size_t>(parameter.elements()), "{}: {} values",
            parameter.name, values.size());
  const base::Stream stream(seed, base::Purpose::kInit, index);
  switch (parameter.init.kind) {
    case Init::Kind::kConstant:
      std::ranges::fill(values, static_cast<float>(parameter.init.center));
      return;
    case Init::Kind::kUniform:
      return draw_uniform(stream, parameter.init, values);
    case Init::Kind::kNormal:
      return draw_normal(stream, parameter.init, values);
  }
}

}  // namespace tri::nn
