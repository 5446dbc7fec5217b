#pragma once
// Room: ops. How backward to dense weights is cut into jobs, whatever makes their sums: a plan has
// in_panels of in_width input channels, out_panels of 16 output channels and `channels` rows of
// each tap, and job_panels says how many in panels a job takes.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"
#include "ops/conv2d/outer_conv.h"
#include "ops/conv2d/panel_kernel.h"

namespace tri::ops {

// How many in panels a job should take for about `wanted` jobs.
inline int64_t panels_of_job(int64_t in_panels, int64_t out_panels, int64_t wanted) {
  return std::clamp<int64_t>(in_panels * out_panels / wanted, 1, in_panels);
}

// Part of dW that one job owns: an out panel and some in panels, all taps.
struct OuterJob {
  template <class Plan>
  OuterJob(const Plan& p, size_t index, int64_t group) {
    const int64_t blocks = base::ceil_div(p.in_panels, p.job_panels);
    out_panel = static_cast<int64_t>(index) / blocks;
    first_panel = static_cast<int64_t>(index) % blocks * p.job_panels;
    panels = std::min(p.job_panels, p.in_panels - first_panel);
    width = p.in_width;
    first_row = first_panel * width;
    rows = std::min(panels * width, p.channels - first_row);
    begin = (group * p.out_panels + out_panel) * p.geometry.panel_floats() + first_row * kPanel;
  }
  int64_t tap_floats() const { return panels * width * kPanel; }  // of a tap's sums

  int64_t out_panel, first_panel, panels, width;
  int64_t first_row, rows;  // of each tap
  int64_t begin;            // where tap 0 of the job starts in storage
};

template <class Plan>
size_t outer_jobs(const Plan& p) {
  return static_cast<size_t>(p.out_panels * base::ceil_div(p.in_panels, p.job_panels));
}

// Hands over `taps` taps, whose sums are where sums_of(tap) says; `index`: of the job, over all
// groups. REQUIRES: an even number of channels, see Note [Panels].
template <class SumsOf>
void deliver_taps_of(const OuterJob& job, size_t index, int64_t taps, int64_t channels,
                     SumsOf sums_of, GradConsumer& consumer) {
  for (int64_t tap = 0; tap < taps; ++tap)
    consumer.consume(index * static_cast<size_t>(taps) + static_cast<size_t>(tap),
                     job.begin + tap * channels * kPanel, job.rows * kPanel, sums_of(tap));
}

inline void deliver_taps(const OuterJob& job, size_t index, int64_t taps, int64_t channels,
                         const float* sums, GradConsumer& consumer) {
  const auto follow = [&](int64_t tap) { return sums + tap * job.tap_floats(); };
  deliver_taps_of(job, index, taps, channels, follow, consumer);
}

}  // namespace tri::ops
