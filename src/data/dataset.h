#pragma once
// Room: data. In: the value of --data. Out: the sources it names. The readers are listed in
// reader_list.inc; adding one means a file pair and a line there.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"
#include "tri/result.h"

namespace tri::data {

// What a reader opens: the training set and, where there is one, the test set.
struct Parts {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> test;  // may be null
};

struct ReaderRequest {
  std::string argument;  // what follows the colon of the spec, or the reader's default
  int64_t pixels = 0;    // side that records should have where the reader can choose; 0: its own
  size_t decode_bytes = size_t{32} << 20;  // an image whose decoder wants more is skipped
};

struct OpenOptions {
  int64_t pixels = 0;        // --pixels; 0: from the data
  double val_split = 0.0;    // --val-split: share of the training set to hold out, in [0, 1)
  uint64_t train_count = 0;  // --train-count: how many to learn from, after the split; 0: all
  size_t decode_bytes = ReaderRequest{}.decode_bytes;
};

struct Dataset {
  std::shared_ptr<const Source> train;
  std::shared_ptr<const Source> validation;  // the held-out part; null without val_split
  std::shared_ptr<const Source> test;        // null only for folders without one, given val_split

  // What a run judges itself by between epochs.
  const Source& judge() const { return validation ? *validation : *test; }
};

// `fashion-mnist[:DIR]`, `cifar10:DIR`, `synthetic:10,32,5000` ... Sources keep each other alive.
// The held-out part does not depend on the seed of the run: two seeds can be compared, and a later
// `eval` finds the same part again.
Result<Dataset> open_dataset(std::string_view spec, const OpenOptions& options = {});

struct ReaderHelp {
  std::string_view name, syntax, text;
};
const std::vector<ReaderHelp>& reader_help();

// A view of `count` records of `parent` from `first` on, in the order of a permutation that depends
// on the parent's count alone.
std::shared_ptr<const Source> split_part(std::shared_ptr<const Source> parent, uint64_t first,
                                         uint64_t count);

}  // namespace tri::data
