#pragma once
// Room: train. A small text file that is old or new, never in between.
#include <string>
#include <string_view>

#include "tri/result.h"

namespace tri::train {

// Writes PATH.tmp-PID, syncs it and renames it to PATH. After an error PATH is as it was.
Result<void> replace_file(const std::string& path, std::string_view text);

// The whole of a small text file. Fails with kFailed.
Result<std::string> read_small_file(const std::string& path);

}  // namespace tri::train
