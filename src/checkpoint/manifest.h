#pragma once
// Room: checkpoint. manifest.json of a checkpoint directory: which files it has, how long they are,
// their CRC-32C. Written last, so a directory without it was never finished.
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tri/result.h"

namespace tri::checkpoint {

std::string encode_manifest(const std::vector<FileRecord>& files);

// The error says what is wrong with the text, not with which file.
Result<std::vector<FileRecord>> parse_manifest(std::string_view text);

}  // namespace tri::checkpoint
