#pragma once
// Room: data. The door between files and batches: a Source gives the record with a number. Every
// reader is a Source; none of them knows about order, augmentation or batches.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/normalise.h"
#include "tensor/shape.h"
#include "tri/result.h"

namespace tri::data {

// One decoded image and its class. Reused from read to read, so it allocates once.
struct Record {
  std::vector<uint8_t> pixels;  // (H, W, C) of SourceInfo::shape
  int32_t label = 0;            // < classes()
};

struct SourceInfo {
  std::string name;  // of the set, as in --data
  std::vector<std::string> class_names;
  tensor::Shape shape = {};                         // of every record
  uint64_t count = 0;                               // records, >= 1
  std::optional<Normalisation> normalisation = {};  // where it is known; else see measure()
  Augment augment = {};                             // what `--augment auto` means for this set

  int64_t classes() const { return static_cast<int64_t>(class_names.size()); }
};

// Records that could not be decoded and were replaced by their successors.
struct Skipped {
  uint64_t count = 0;       // distinct records met so far
  std::string first_error;  // about the one with the lowest number; empty if none
};

class Source {
 public:
  virtual ~Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const SourceInfo& info() const { return info_; }

  // What comes out depends on the files and `index` alone. Any number of threads may call it at
  // once, each with a record of its own. REQUIRES: index < info().count.
  virtual Result<void> read(uint64_t index, Record& record) const = 0;

  virtual Skipped skipped() const { return {}; }

 protected:
  explicit Source(SourceInfo info) : info_(std::move(info)) {}

 private:
  SourceInfo info_;
};

}  // namespace tri::data
