#pragma once
// Room: checkpoint. Safetensors files, streamed: neither side ever holds a tensor, so saving and
// loading need a piece of memory whatever the model's size. Knows names, types and bytes only.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/safetensors_header.h"
#include "tri/result.h"

namespace tri::checkpoint {

// What the manifest keeps of a finished file.
struct FileRecord {
  std::string name;  // within its directory
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
  bool operator==(const FileRecord&) const = default;
};

// Declare all tensors, then append their bytes in the order of tensors(), in pieces of any size,
// then finish. A file without finish() is incomplete; who wrote it removes it.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(std::string path, std::vector<TensorSpec> tensors,
                                          Metadata metadata);

  // The order in which bytes are expected: larger types first, see lay_out().
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }

  // REQUIRES: the bytes belong to `tensor`, an index into tensors(), all before it are complete,
  // and it does not get more bytes than it has.
  Result<void> append(size_t tensor, std::span<const std::byte> bytes);

  // Writes the file through to the disk. REQUIRES: all bytes of all tensors were appended.
  Result<FileRecord> finish();

 private:
  SafetensorsWriter(File file, Header header)
      : file_(std::move(file)), header_(std::move(header)) {}
  Result<void> flush();

  File file_;
  Header header_;
  uint64_t appended_ = 0;
  uint32_t crc_ = 0;
  std::vector<std::byte> pending_;  // small appends, gathered into one write
};

// Checks the whole header at open; reads any range of any tensor afterwards. Thread-safe.
class SafetensorsReader {
 public:
  static Result<SafetensorsReader> open(std::string path);

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const Metadata& metadata() const { return header_.metadata; }
  const TensorInfo* find(std::string_view name) const;  // null if there is none

  // Bytes [offset, offset + out.size()) of the tensor. REQUIRES: they lie inside it.
  Result<void> read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out) const;

 private:
  SafetensorsReader(File file, Header header, uint64_t data_begin)
      : file_(std::move(file)), header_(std::move(header)), data_begin_(data_begin) {}

  File file_;
  Header header_;
  uint64_t data_begin_;
};

}  // namespace tri::checkpoint
