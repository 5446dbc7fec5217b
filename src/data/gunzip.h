#pragma once
// Room: data. A .gz file cannot be read at an offset, so it is unpacked once into a file without a
// name in TMPDIR (/tmp by default): disk instead of memory, and gone with the process.
#include <functional>
#include <span>

#include "data/data_file.h"

namespace tri::data {

bool is_gzip(const File& file);

// `size_of(head)` says from the first bytes (at most 64 KiB) how long the whole must be. What is
// longer or shorter is an error, so no file can fill the disk by claiming one size and being
// another.
Result<File> gunzip(const File& packed,
                    const std::function<Result<uint64_t>(std::span<const uint8_t> head)>& size_of);

}  // namespace tri::data
