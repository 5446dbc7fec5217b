#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "train/ceiling.h"
#include "train/checkpoint_path.h"
#include "train/engine_options.h"
#include "train/invalid.h"
#include "train/model_file.h"
#include "tri/step.h"

namespace tri {
namespace {

using checkpoint::DType;
using checkpoint::SafetensorsReader;
using checkpoint::SafetensorsWriter;
using checkpoint::TensorInfo;
using checkpoint::TensorSpec;

struct BatchFile {
  SafetensorsReader reader;
  TensorInfo x, y;
  int64_t dim(size_t index) const { return static_cast<int64_t>(x.shape[index]); }
};

Result<TensorInfo> find(const SafetensorsReader& reader, const std::string& name, DType dtype,
                        size_t rank, std::string_view form) {
  const TensorInfo* const found = reader.find(name);
  if (found == nullptr)
    return invalid(fmt::format("'{}' has no tensor '{}'; give {}", reader.path(), name, form));
  if (found->dtype != dtype || found->shape.size() != rank || found->bytes() == 0)
    return invalid(fmt::format("'{}' in '{}' is {} of ({}); give {}", name, reader.path(),
                               checkpoint::name(found->dtype), fmt::join(found->shape, ", "),
                               form));
  return *found;
}

Result<BatchFile> open_batch(const std::string& path) {
  TRI_ASSIGN(SafetensorsReader reader, SafetensorsReader::open(path));
  TRI_ASSIGN(const TensorInfo x, find(reader, "x", DType::kF32, 4, "F32 of (N, C, H, W)"));
  TRI_ASSIGN(const TensorInfo y, find(reader, "y", DType::kI64, 1, "I64 of (N)"));
  for (const TensorInfo& tensor : reader.tensors())
    if (tensor.name != "x" && tensor.name != "y")
      return invalid(
          fmt::format("'{}' holds a tensor '{}' that a step has no use for; give only "
                      "x and y",
                      path, tensor.name));
  if (x.shape[0] != y.shape[0])
    return invalid(fmt::format("'{}' holds {} images but {} labels; give one label per image", path,
                               x.shape[0], y.shape[0]));
  return BatchFile{std::move(reader), x, y};
}

// NCHW to NHWC, a sample at a time.
Result<void> read_batch(const BatchFile& file, int64_t classes, const exec::BatchRoom& room) {
  const auto channels = static_cast<size_t>(file.dim(1));
  const auto pixels = static_cast<size_t>(file.dim(2) * file.dim(3));
  std::vector<float> sample(channels * pixels);
  for (size_t n = 0; n < room.labels.size(); ++n) {
    const std::span<float> image(sample);
    TRI_TRY(file.reader.read(file.x, n * image.size_bytes(), std::as_writable_bytes(image)));
    for (size_t c = 0; c < channels; ++c)
      for (size_t p = 0; p < pixels; ++p)
        room.x[(n * pixels + p) * channels + c] = sample[c * pixels + p];
    room.samples[n] = n;
  }
  std::vector<int64_t> labels(room.labels.size());
  TRI_TRY(file.reader.read(file.y, 0, std::as_writable_bytes(std::span(labels))));
  for (size_t n = 0; n < labels.size(); ++n) {
    if (labels[n] < 0 || labels[n] >= classes)
      return invalid(
          fmt::format("label {} of '{}' is {}, but the model has {} classes; labels "
                      "count from 0",
                      n, file.reader.path(), labels[n], classes));
    room.labels[n] = static_cast<int32_t>(labels[n]);
  }
  return {};
}

// As many as the last layer in the file of weights has outputs.
Result<int64_t> classes_of(const Config& config, const tensor::Shape& image) {
  if (config.classes) return *config.classes;
  TRI_ASSIGN(const auto model, train::model_of(config, {image, 1}));
  TRI_ASSIGN(const std::string weights, train::model_file_of(config.init));
  TRI_ASSIGN(const SafetensorsReader reader, SafetensorsReader::open(weights));
  for (const nn::Node& node : model->nodes) {
    if (node.layer != model->layers - 1 || node.weight < 0) continue;
    const std::string& name = model->parameters[static_cast<size_t>(node.weight)].name;
    const TensorInfo* const found = reader.find(name);
    if (found == nullptr || found->shape.empty() || found->shape[0] == 0 ||
        found->shape[0] > ops::kMaxExtent)
      return invalid(
          fmt::format("'{}' has no tensor '{}' that could tell the number of classes; "
                      "give weights of {} or --classes",
                      config.init, name, config.model));
    return static_cast<int64_t>(found->shape[0]);
  }
  return invalid(
      fmt::format("{} has no layer to tell the number of classes; give --classes", config.model));
}

// What goes into the file: names, shapes and how to get the values, which exist one tensor at a
// time.
class Results {
 public:
  using Fill = std::function<void(std::span<float>)>;

  void add(std::string name, std::vector<uint64_t> shape, Fill fill) {
    fills_[name] = std::move(fill);
    specs_.push_back({std::move(name), DType::kF32, std::move(shape)});
  }

  Result<void> write(const std::string& path) {
    const std::string unfinished = path + ".part";
    Result<void> written = write_whole(unfinished);
    if (written && std::rename(unfinished.c_str(), path.c_str()) != 0) {
      std::remove(unfinished.c_str());
      return unexpected(ErrorCode::kFailed,
                        fmt::format("'{}' could not be written; is it a directory?", path));
    }
    if (!written) std::remove(unfinished.c_str());
    return written;
  }

 private:
  Result<void> write_whole(const std::string& path) {
    TRI_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::create(path, specs_, {}));
    std::vector<float> values;
    for (size_t t = 0; t < writer.tensors().size(); ++t) {
      const TensorInfo& tensor = writer.tensors()[t];
      values.resize(tensor.bytes() / sizeof(float));
      fills_.at(tensor.name)(values);
      TRI_TRY(writer.append(t, std::as_bytes(std::span(values))));
    }
    TRI_ASSIGN(const checkpoint::FileRecord record, writer.finish());
    (void)record;
    return {};
  }

  std::vector<TensorSpec> specs_;
  std::map<std::string, Fill> fills_;
};

Results results_of(exec::Engine& engine, const OneStep& step) {
  Results results;
  results.add("loss", {},
              [&step](std::span<float> out) { out[0] = static_cast<float>(step.loss); });
  results.add("logits", {static_cast<uint64_t>(step.samples), static_cast<uint64_t>(step.classes)},
              [&engine](std::span<float> out) { engine.logits(out); });
  const nn::Model& model = engine.model();
  for (size_t p = 0; p < model.parameters.size(); ++p) {
    const nn::Parameter& parameter = model.parameters[p];
    results.add("grad." + parameter.name, {parameter.dims.begin(), parameter.dims.end()},
                [&engine, p](std::span<float> out) { engine.gradient(p, out); });
  }
  for (size_t n = 0; n < model.nodes.size(); ++n) {
    const nn::Node& node = model.nodes[n];
    if (node.kind != ops::OpKind::kBatchNorm) continue;
    const auto add = [&](std::string_view which, std::span<const float> values) {
      results.add(fmt::format("running.{}.{}", node.name, which), {values.size()},
                  [values](std::span<float> out) { std::ranges::copy(values, out.begin()); });
    };
    add("running_mean", engine.parameters().running_mean(static_cast<int>(n)));
    add("running_var", engine.parameters().running_variance(static_cast<int>(n)));
  }
  return results;
}

}  // namespace

Result<int64_t> samples_of(const std::string& input) {
  TRI_ASSIGN(const BatchFile file, open_batch(input));
  return file.dim(0);
}

Result<OneStep> one_step(const Config& config, const std::string& input) {
  if (config.tune)
    return invalid("--tune was given, but a single step has nothing to gain by it; leave it out");
  TRI_ASSIGN(const BatchFile file, open_batch(input));
  if (file.dim(0) != config.batch)
    return invalid(fmt::format("--batch is {}, but '{}' holds {} images; leave --batch out",
                               config.batch, input, file.dim(0)));
  train::InputSize size{{file.dim(2), file.dim(3), file.dim(1)}, 0};
  TRI_ASSIGN(size.classes, classes_of(config, size.image));
  TRI_ASSIGN(const auto model, train::model_of(config, size));
  TRI_ASSIGN(exec::EngineOptions options, train::engine_options(config, *model));
  options.step.mode = exec::StepMode::kAfter;
  options.step.update = false;
  options.evaluates = false;
  options.curvature = {};
  options.batch_buffers = 1;
  TRI_ASSIGN(const auto engine, train::plan_engine(config, model, options));
  TRI_ASSIGN(const uint64_t ceiling, train::ceiling_bytes(config.memory, memory::Probes()));
  const train::Need need{.base_bytes = memory::Probes().resident().bytes.value_or(0),
                         .engine_bytes = engine->forecast().engine_peak_bytes,
                         .pieces_bytes = train::pieces_bytes(engine->parameters())};
  if (need.total() > ceiling)
    return unexpected(
        train::does_not_fit(need, ceiling, "give a larger --memory or a smaller batch"));
  TRI_TRY(engine->obtain(static_cast<uint64_t>(config.seed)));
  TRI_ASSIGN(const std::string weights, train::model_file_of(config.init));
  TRI_ASSIGN(const train::LoadedModel loaded,
             train::read_model(weights, engine->parameters(), false));
  if (loaded.unused > 0)
    return invalid(
        fmt::format("'{}' holds {} tensors that {} has no place for; give the weights "
                    "of this model alone",
                    config.init, loaded.unused, config.model));
  TRI_TRY(read_batch(file, size.classes, engine->batch(0)));

  base::ThreadPool pool(options.step.threads);
  const double loss = engine->train(0, {1}, pool).loss.loss;
  const OneStep step{loss / static_cast<double>(config.batch), config.batch, size.classes,
                     model->parameter_elements()};
  TRI_TRY(results_of(*engine, step).write(config.out));
  return step;
}

}  // namespace tri
