#pragma once
// Door of room train: a training from its first step to its last, and what can be done with its
// checkpoints. In: a configuration, or a directory. Out: files, and the numbers that matter. Shows
// progress only where it is told to; ends no process.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tri/config.h"
#include "tri/result.h"

namespace tri {

// Where progress is shown: a panel on a terminal, otherwise a line per epoch.
struct Display {
  int file = -1;  // descriptor; -1: nowhere
};

struct TrainOutcome {
  std::string directory;
  std::string summary;           // JSON, as in summary.json
  std::optional<Error> stopped;  // why it ended early: a signal, or its numbers were lost
};

// Trains until all epochs are done, --max-steps or --patience say so, or SIGINT or SIGTERM asks.
Result<TrainOutcome> run_training(const ResolvedConfig& resolved, const Display& display);

// Continues exactly where a run stopped. `changes` (key and text) may set what cannot change its
// results: threads, memory, max-steps, save-every, and where the data lie.
using Settings = std::vector<std::pair<std::string, std::string>>;
Result<TrainOutcome> resume_training(const std::string& directory, const Settings& changes,
                                     const Display& display);

// Trains once more as the run in `directory` was trained, from its first step on, below the
// ceilings that it met, whoever moved them then: the same batches, the same bits. `changes` as for
// resume_training(), and where to.
Result<TrainOutcome> repeat_training(const std::string& directory, const Settings& changes,
                                     const Display& display);

// A trained network. A checkpoint knows how it is built and fed; for a safetensors file the caller
// says so.
struct ModelSource {
  std::string path;                // a checkpoint, a run's directory or a safetensors file
  std::string model;               // of a file; empty: the checkpoint's own
  std::optional<double> width;     // of a file; none: 1
  std::string data;                // empty: the checkpoint's own
  std::optional<int64_t> pixels;   // of a file
  std::optional<int64_t> threads;  // none: all that the process may use
  int64_t batch = 64;              // samples that are looked at together
};

struct Evaluated {
  std::string checkpoint;  // the file of weights that was used
  std::string part;        // "test" or "validation"
  uint64_t count = 0;
  double accuracy = 0, top5 = 0, loss = 0;
  std::vector<std::string> class_names;
  std::vector<uint64_t> confusion;  // (true class, predicted class)
  uint64_t skipped = 0;             // images that could not be read: others were counted instead
  std::string first_skipped;        // why, of the first
};
Result<Evaluated> evaluate_model(const ModelSource& source);

struct Prediction {
  std::string image;
  size_t label = 0;
  std::string class_name;
  double probability = 0;
  std::string error;  // why there is none of these, for an image that cannot be read
};
Result<std::vector<Prediction>> predict_images(const ModelSource& source,
                                               const std::vector<std::string>& images);

}  // namespace tri
