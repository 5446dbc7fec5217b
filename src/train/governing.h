#pragma once
// Room: train. Between the configuration, the network and room control: which governor a run has,
// what a step tells it, and what the engine is to do by its decisions.
#include <cstdint>
#include <memory>
#include <vector>

#include "control/governor.h"
#include "exec/engine.h"
#include "nn/model.h"
#include "tri/config.h"

namespace tri::train {

// REQUIRES: a resolved configuration. `epoch_samples`: of the training set; 0 where nothing will be
// trained.
control::Governor make_governor(const Config& config, const nn::Model& model,
                                uint64_t epoch_samples = 0);

std::vector<exec::LayerFormats> formats_of(const control::PrecisionTable& table);
control::PrecisionTable table_of(const std::vector<exec::LayerFormats>& formats);

// What the governor learns from a step of `batch` samples: all that the report tells. Steps,
// samples, rate and memory are the caller's to fill in.
control::Signals signals_of(const exec::Engine& engine, const exec::StepReport& report,
                            int64_t batch);

// The share of each layer's weights that overflow the format they work in. Reads every weight.
void add_weight_overflows(exec::Engine& engine, control::Signals& signals);

}  // namespace tri::train
