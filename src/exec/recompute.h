#pragma once
// Room: exec. Which tensors a step drops and makes again, to stay within a number of bytes. In: a
// network and a room. Out: segments for StepSpec::recompute. Changes no bit of a result: a segment
// is made again from the same numbers by the same kernels.
#include <cstddef>
#include <optional>
#include <vector>

#include "exec/engine.h"

namespace tri::exec {

// The network cut into runs of at least `cuts` blocks, a block being what lies between two places
// where a single tensor connects all before with all behind. Runs that would drop nothing are left
// out.
std::vector<Segment> segments(const Lowered& graph, size_t cuts);

// Every block made again: what --recompute all asks for.
StepSpec with_all_recomputed(const Engine& engine, StepSpec spec);

// All of the network recomputed, in smaller and in larger segments. Which of them has the least
// peak depends on the batch.
std::vector<std::vector<Segment>> ways_to_recompute(const Lowered& graph);

// `spec` with the least recomputation that brings its peak to at most `bytes`, by most bytes for
// the fewest multiply-adds; the one of the smallest peak if that cannot be.
StepSpec with_recompute_within(const Engine& engine, StepSpec spec, size_t bytes);

}  // namespace tri::exec
