#include "nn/init.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/philox.h"

namespace tri::nn {
namespace {

constexpr uint64_t kPairWords = 4;  // that two normal numbers take

void draw_uniform(base::Stream stream, const Init& init, size_t first, std::span<float> values) {
  stream.seek(first);
  for (float& value : values) {
    const double unit = 2.0 * static_cast<double>(stream.uniform()) - 1.0;
    value = static_cast<float>(init.center + init.spread * unit);
  }
}

void draw_normal(base::Stream stream, const Init& init, size_t first, std::span<float> values) {
  stream.seek(first / 2 * kPairWords);
  std::pair<double, double> pair;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool even = (first + i) % 2 == 0;
    if (even || i == 0) pair = stream.normal_pair();
    const double normal = even ? pair.first : pair.second;
    values[i] = static_cast<float>(init.center + init.spread * normal);
  }
}

}  // namespace

void draw_initial(const Model& model, size_t index, uint64_t seed, std::span<float> values,
                  size_t first) {
  TRI_CHECK(index < model.parameters.size(), "index = {}", index);
  const Parameter& parameter = model.parameters[index];
  TRI_CHECK(first + values.size() <= static_cast<size_t>(parameter.elements()), "{}: {} + {}",
            parameter.name, first, values.size());
  const base::Stream stream(seed, base::Purpose::kInit, index);
  switch (parameter.init.kind) {
    case Init::Kind::kConstant:
      std::ranges::fill(values, static_cast<float>(parameter.init.center));
      return;
    case Init::Kind::kUniform:
      return draw_uniform(stream, parameter.init, first, values);
    case Init::Kind::kNormal:
      return draw_normal(stream, parameter.init, first, values);
  }
}

}  // namespace tri::nn
