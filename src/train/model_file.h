#pragma once
// Room: train. A model's weights as other frameworks know them: one safetensors file with
// torchvision's names, OIHW. In: Parameters, or a file. Out: the other. Knows no optimizer state
// and no run; one parameter at a time is in memory.
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/directory.h"
#include "exec/parameters.h"
#include "tri/result.h"

namespace tri::train {

inline constexpr std::string_view kModelFile = "model.safetensors";

// Adds kModelFile to a checkpoint. Running statistics stay fp32 in any `dtype`; `batches` is what
// num_batches_tracked gets.
Result<void> write_model(checkpoint::DirectoryWriter& directory, const exec::Parameters& parameters,
                         checkpoint::DType dtype, uint64_t batches);

struct LoadedModel {
  std::vector<std::string> kept;  // parameters of the head, whose sizes differ: left as they were
  uint64_t unused = 0;            // tensors of the file that the model has no place for
};

// Reads F32, BF16 and F16. A last layer of another size is left alone if `keep_head`; any other
// difference is kInvalid.
Result<LoadedModel> read_model(const std::string& path, exec::Parameters& parameters,
                               bool keep_head);

}  // namespace tri::train
