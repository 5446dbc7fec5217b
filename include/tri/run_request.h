#pragma once
// Door of room train: what a run in progress can be asked from outside. In: its directory. Out:
// a request in control.json, which the run reads at its next step boundary.
#include <cstdint>
#include <string>

#include "tri/result.h"

namespace tri {

// Asks the run in `directory` to live in `memory`, a size as --memory takes it, from its next step
// on. Returns the number of the request. Fails with kInvalid where there is no such run, it is over
// or the size cannot be read; with kFailed where the file cannot be written.
Result<uint64_t> request_memory(const std::string& directory, const std::string& memory);

}  // namespace tri
