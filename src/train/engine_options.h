#pragma once
// Room: train. In: a resolved Config. Out: what the engine is to build and plan: the network, the
// step and how things are stored. Opens no data: sizes that only files know are the caller's to
// give.
#include <cstdint>
#include <memory>

#include "exec/engine.h"
#include "nn/model.h"
#include "optim/update.h"
#include "tensor/shape.h"
#include "tri/config.h"
#include "tri/result.h"

namespace tri::train {

// What a network must know of its data.
struct InputSize {
  tensor::Shape image;
  int64_t classes = 0;
};

// For commands that need no data: where --data was not given but --pixels or --classes was, images
// of no data set, in colour.
Config without_data(const ResolvedConfig& resolved);

// From --pixels, --classes and what is known of a data set by its name. Fails with kInvalid where
// only the files would tell.
Result<InputSize> input_size(const Config& config);

// Of an image that waits to be read: files of known sets have their own size, whatever --pixels.
tensor::Shape stored_shape(const Config& config, const tensor::Shape& input);

Result<std::shared_ptr<const nn::Model>> model_of(const Config& config, const InputSize& input);
Result<std::shared_ptr<const nn::Model>> model_of(const Config& config);

// With the precision table that a run starts with.
Result<exec::EngineOptions> engine_options(const Config& config, const nn::Model& model);

// An engine of these options, with --recompute all where that is asked for.
Result<std::unique_ptr<exec::Engine>> plan_engine(const Config& config,
                                                  std::shared_ptr<const nn::Model> model,
                                                  exec::EngineOptions options);

size_t threads_of(const Config& config);

// REQUIRES: a resolved configuration. At its first rate; schedules change `lr` later.
optim::Hyper hyper_of(const Config& config);
bool is_stateless(const Config& config);
// The form of the optimizer's state, "none" where there is none.
std::string state_word(const Config& config);

}  // namespace tri::train
