#pragma once
// Room: ops. Where an operation makes the rows of a tile as fp32: in its result where that holds
// them as they are, else in scratch, from where finish() stores them.
#include "ops/rows/rows.h"

namespace tri::ops {

class ResultRows {
 public:
  // `room`: range.count * range.channels floats. REQUIRES: what is read for the range, and lies in
  // the result as well, lies at the same place.
  ResultRows(const Sink& sink, const RowRange& range, float* room)
      : sink_(sink),
        range_(range),
        rows_(sink.direct()
                  ? static_cast<float*>(sink.data) +
                        (range.sample * sink.pixels + range.pixel) * sink.row_stride + range.channel
                  : room),
        stride_(sink.direct() ? sink.row_stride : range.channels) {}

  float* rows() const { return rows_; }
  int64_t stride() const { return stride_; }
  StoreCounts finish() const {
    return sink_.direct() ? StoreCounts{} : store_rows(sink_, range_, rows_, stride_);
  }

 private:
  const Sink& sink_;
  const RowRange range_;
  float* const rows_;
  const int64_t stride_;
};

}  // namespace tri::ops
