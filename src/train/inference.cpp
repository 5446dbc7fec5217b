// A trained network at work: its accuracy on a data set, and the classes of single images.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "data/data_file.h"
#include "data/dataset.h"
#include "data/image.h"
#include "data/loader.h"
#include "data/transform.h"
#include "train/checkpoint_path.h"
#include "train/engine_options.h"
#include "train/evaluation.h"
#include "train/governing.h"
#include "train/invalid.h"
#include "train/model_file.h"
#include "tri/session.h"

namespace tri {
namespace train {
namespace {

constexpr size_t kDecodeBytes = size_t{256} << 20;  // of one image that somebody named

// A network with its weights, ready to look at images.
struct Loaded {
  ModelCard card;
  std::string file;
  std::unique_ptr<exec::Engine> engine;
  std::unique_ptr<base::ThreadPool> pool;
};

// The card of a plain file: what the caller says, and the rest from the data.
Result<ModelCard> card_from_data(const ModelSource& source, const data::Dataset& set) {
  const data::SourceInfo& info = set.train->info();
  ModelCard card{.model = source.model,
                 .width = source.width.value_or(1),
                 .image = info.shape,
                 .class_names = info.class_names,
                 .data = source.data,
                 .val_split = 0,
                 .weights = "fp32",
                 .table = {},
                 .normalisation = {},
                 .kernels = {}};
  if (source.pixels) card.image.h = card.image.w = *source.pixels;
  TRI_ASSIGN(card.normalisation, data::measure(*set.train));
  return card;
}

Result<ModelCard> card_of(const ModelSource& source, const SavedModel& saved) {
  if (saved.state) {
    ModelCard card = saved.state->card;
    if (!source.model.empty() && source.model != card.model) {
      return invalid(fmt::format("--model {} was given and '{}' holds a {}; leave it out",
                                 source.model, saved.file, card.model));
    }
    const bool sized = source.pixels && *source.pixels != card.image.h;
    if (sized || (source.width && *source.width != card.width)) {
      return invalid(fmt::format(
          "--{} was given and '{}' holds a network of width {} for {} pixels; leave it out",
          sized ? "pixels" : "width", saved.file, card.width, card.image.h));
    }
    if (!source.data.empty()) card.data = source.data;
    return card;
  }
  if (source.model.empty() || source.data.empty()) {
    return invalid(
        fmt::format("'{}' says nothing about its network; give --model, and --data for "
                    "its classes and image size",
                    source.path));
  }
  TRI_ASSIGN(const data::Dataset set,
             data::open_dataset(source.data, {.pixels = source.pixels.value_or(0)}));
  return card_from_data(source, set);
}

Result<Loaded> load(const ModelSource& source, int64_t batch) {
  Loaded loaded;
  TRI_ASSIGN(SavedModel saved, find_model(source.path));
  TRI_ASSIGN(loaded.card, card_of(source, saved));
  loaded.file = saved.file;
  Config config;
  config.model = loaded.card.model;
  config.width = loaded.card.width;
  config.threads = source.threads;
  TRI_ASSIGN(
      const auto model,
      model_of(config, {loaded.card.image, static_cast<int64_t>(loaded.card.class_names.size())}));
  // Weights in the form they were trained in, so that they round as they did then; no state, no
  // backward pass.
  exec::EngineOptions options;
  options.step.samples = batch;
  options.step.threads = threads_of(config);
  options.step.training = false;
  options.step.formats = formats_of(loaded.card.table);
  options.step.kernels = loaded.card.kernels;
  options.forms = {
      .weights = optim::parse_weight_form(loaded.card.weights).value_or(optim::WeightForm::kF32),
      .state = optim::StateForm::kF32,
      .moments = 0};
  options.batch_buffers = 1;
  TRI_ASSIGN(loaded.engine, exec::Engine::plan(model, options));
  TRI_TRY(loaded.engine->obtain(0));
  TRI_TRY(read_model(saved.file, loaded.engine->parameters(), false));
  loaded.pool = std::make_unique<base::ThreadPool>(options.step.threads);
  return loaded;
}

}  // namespace
}  // namespace train

Result<Evaluated> evaluate_model(const ModelSource& source) {
  using namespace tri::train;
  TRI_ASSIGN(const Loaded loaded, load(source, source.batch));
  const ModelCard& card = loaded.card;
  TRI_ASSIGN(const data::Dataset set,
             data::open_dataset(card.data, {.pixels = card.image.h, .val_split = card.val_split}));
  const std::shared_ptr<const data::Source> part = set.test ? set.test : set.validation;
  const data::SourceInfo& info = part->info();
  if (info.class_names.size() != card.class_names.size()) {
    return invalid(
        fmt::format("'{}' has {} classes and the network {}; choose the data it was "
                    "trained for",
                    card.data, info.class_names.size(), card.class_names.size()));
  }
  if (info.shape.c != card.image.c && info.shape.c != 1) {
    return invalid(fmt::format("'{}' has {} channels and the network takes {}; choose other data",
                               card.data, info.shape.c, card.image.c));
  }
  std::vector<std::byte> ring(data::Loader::ring_bytes(info, static_cast<size_t>(source.batch)));
  TRI_ASSIGN(Judgement judged,
             evaluate({*loaded.engine, *loaded.pool, ring}, part, card.normalisation, true));
  return Evaluated{.checkpoint = loaded.file,
                   .part = set.test ? "test" : "validation",
                   .count = judged.count,
                   .accuracy = judged.accuracy,
                   .top5 = judged.top5,
                   .loss = judged.loss,
                   .class_names = info.class_names,
                   .confusion = std::move(judged.confusion),
                   .skipped = part->skipped().count,
                   .first_skipped = part->skipped().first_error};
}

Result<std::vector<Prediction>> predict_images(const ModelSource& source,
                                               const std::vector<std::string>& images) {
  using namespace tri::train;
  TRI_ASSIGN(const Loaded loaded, load(source, 1));
  const tensor::Shape shape = loaded.card.image;
  data::Normalisation normalisation = loaded.card.normalisation;
  // Grey training images that the network saw in every channel.
  normalisation.mean.resize(static_cast<size_t>(shape.c), normalisation.mean.front());
  normalisation.deviation.resize(static_cast<size_t>(shape.c), normalisation.deviation.front());
  const data::Transform transform(shape, shape, normalisation, {}, 0);
  std::vector<float> scratch(transform.scratch_floats());
  std::vector<float> logits(loaded.card.class_names.size());
  std::vector<uint8_t> pixels;
  std::vector<Prediction> predictions;
  for (const std::string& path : images) {
    const Result<void> read = [&]() -> Result<void> {
      TRI_ASSIGN(const data::File file, data::File::open(path));
      return data::decode_image(file, shape, kDecodeBytes, pixels);
    }();
    if (!read) {
      predictions.push_back({.image = path, .class_name = {}, .error = read.error().message});
      continue;
    }
    const exec::BatchRoom room = loaded.engine->batch(0);
    transform.apply(pixels.data(), 0, 0, room.x.data(), scratch);
    room.labels[0] = 0;
    loaded.engine->evaluate(0, 1, *loaded.pool);
    loaded.engine->logits(logits);
    const auto top = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - logits[top]);
    predictions.push_back({path, top, loaded.card.class_names[top], 1 / sum, {}});
  }
  return predictions;
}

}  // namespace tri
