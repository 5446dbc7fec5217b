#include "tri/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "data/augment.h"
#include "train/ceiling.h"
#include "train/engine_options.h"
#include "train/governing.h"
#include "train/largest_batch.h"
#include "train/process_memory.h"
#include "train/remedies.h"
#include "train/step_pricing.h"

namespace tri {
namespace {

using base::format_bytes;
using numeric::Format;

MemoryPlan describe(const Config& config, const exec::Forecast& forecast,
                    const exec::StepSpec& spec) {
  MemoryPlan plan;
  plan.batch = spec.samples;
  plan.engine_peak_bytes = forecast.engine_peak_bytes;
  plan.params = forecast.params;
  for (const memory::Kind kind : memory::kKinds)
    plan.by_kind.emplace_back(memory::name(kind), forecast.by_kind[kind]);
  for (size_t l = 0; l < forecast.layers.size(); ++l) {
    const exec::LayerForecast& layer = forecast.layers[l];
    const exec::LayerFormats& row = spec.formats[l];
    const auto word = [](Format format) { return numeric::spec(format).name; };
    plan.layers.push_back({layer.name, layer.params, layer.weights_bytes, layer.state_bytes,
                           layer.saved_bytes, word(row.p), word(row.y), word(row.gy), word(row.gp),
                           train::state_word(config), ops::name(layer.kernels.forward),
                           ops::name(layer.kernels.backward),
                           word(layer.multiplies_bf16 ? Format::kBf16 : Format::kF32)});
  }
  return plan;
}

// What `train` makes of it: another step, where its modes allow.
Result<void> find_way(const Config& config, const nn::Model& model, const exec::Engine& engine,
                      const train::StepPricing& pricing, MemoryPlan& plan) {
  const train::FirstStep first = train::first_step(config, model, pricing, plan.ceiling_bytes);
  if (first.bytes > plan.ceiling_bytes) return {};
  TRI_ASSIGN(const exec::Forecast forecast, engine.price(first.spec));
  const uint64_t ceiling = plan.ceiling_bytes;
  plan = describe(config, forecast, first.spec);
  plan.batch = first.spec.batch();
  plan.ceiling_bytes = ceiling;
  plan.process_peak_bytes = first.bytes;
  plan.fits = true;
  for (const control::Change& change : first.decision.changes)
    plan.changes.push_back({change.what, change.from, change.to, change.reason});
  return {};
}

}  // namespace

Result<MemoryPlan> plan_memory(const ResolvedConfig& resolved) {
  const Config config = train::without_data(resolved);
  TRI_ASSIGN(const uint64_t ceiling, train::ceiling_bytes(config.memory, memory::Probes()));
  TRI_ASSIGN([[maybe_unused]] const data::Augment augment,
             data::parse_augment(config.augment, {}));  // before a run would refuse it
  TRI_ASSIGN(const auto model, train::model_of(config));
  TRI_ASSIGN(const exec::EngineOptions options, train::engine_options(config, *model));
  TRI_ASSIGN(const auto engine, train::plan_engine(config, model, options));
  // Now, as a run would hold it: the search below leaves traces on the heap.
  TRI_ASSIGN(uint64_t base, train::process_base_bytes(options.step.threads));
  base += train::pieces_bytes(engine->parameters()) + train::decode_bytes(config.data, ceiling);
  const auto image_bytes =
      static_cast<uint64_t>(train::stored_shape(config, model->input_shape()).elements());
  const train::Besides besides{base, [image_bytes](int64_t samples) {
                                 return static_cast<uint64_t>(samples) * image_bytes;
                               }};
  const train::StepPricing pricing(config, *engine, besides);

  MemoryPlan plan = describe(config, engine->forecast(), engine->spec());
  plan.ceiling_bytes = ceiling;
  plan.process_peak_bytes = pricing.bytes_now();
  plan.fits = plan.process_peak_bytes <= ceiling;
  if (!plan.fits) TRI_TRY(find_way(config, *model, *engine, pricing, plan));
  const control::Governor governor = train::make_governor(config, *model);
  if (const control::Assignment& low = governor.start().assignment; !low.empty()) {
    plan.tensor_bits = control::tensor_bits(governor.ops(), plan.batch, low);
    plan.low_ratio = control::low_ratio(governor.ops(), plan.batch, low);
  }
  TRI_ASSIGN(plan.max_batch, train::largest_batch(config, *engine, besides, ceiling));
  // A run that is pressed hard climbs down more rungs than that.
  if (plan.fits) plan.max_batch = std::max(plan.max_batch, plan.batch);
  if (!plan.fits) {
    TRI_ASSIGN(plan.remedies,
               train::find_remedies(config, model, besides, ceiling, plan.max_batch));
  }
  return plan;
}

std::string refusal(const MemoryPlan& plan) {
  const std::string needs =
      fmt::format("a batch of {} needs {}, but the ceiling is {}", plan.batch,
                  format_bytes(plan.process_peak_bytes), format_bytes(plan.ceiling_bytes));
  return fmt::format("{}; {}", needs, train::advice(plan.remedies));
}

}  // namespace tri
