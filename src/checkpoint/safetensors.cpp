#include "checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "checkpoint/crc32c.h"

namespace tri::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian and tensors are written as they lie in memory");

constexpr size_t kPendingBytes = size_t{256} << 10;

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Unexpected not_safetensors(const std::string& path, const std::string& why) {
  return unexpected(
      ErrorCode::kFailed,
      fmt::format("'{}' is not a sound safetensors file: {}; restore it from a copy", path, why));
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(std::string path,
                                                    std::vector<TensorSpec> tensors,
                                                    Metadata metadata) {
  Result<Header> header = lay_out(std::move(tensors), std::move(metadata));
  if (!header) return unexpected(header.error());
  const Result<std::string> encoded = encode_header(*header);
  if (!encoded) return unexpected(encoded.error());
  Result<File> file = File::create(std::move(path));
  if (!file) return unexpected(file.error());

  SafetensorsWriter writer(std::move(*file), std::move(*header));
  const auto start = std::as_bytes(std::span(*encoded));
  writer.crc_ = crc32c(0, start);
  TRI_TRY(writer.file_.write(start));
  writer.pending_.reserve(kPendingBytes);
  return writer;
}

Result<void> SafetensorsWriter::append(size_t tensor, std::span<const std::byte> bytes) {
  TRI_CHECK(tensor < header_.tensors.size(), "tensor {} of {}", tensor, header_.tensors.size());
  const TensorInfo& info = header_.tensors[tensor];
  TRI_CHECK(info.begin <= appended_ && appended_ + bytes.size() <= info.end,
            "'{}' takes [{}, {}), got [{}, +{})", info.name, info.begin, info.end, appended_,
            bytes.size());
  appended_ += bytes.size();
  crc_ = crc32c(crc_, bytes);
  if (pending_.size() + bytes.size() > kPendingBytes) TRI_TRY(flush());
  if (bytes.size() > kPendingBytes) return file_.write(bytes);
  pending_.insert(pending_.end(), bytes.begin(), bytes.end());
  return {};
}

Result<void> SafetensorsWriter::flush() {
  TRI_TRY(file_.write(pending_));
  pending_.clear();
  return {};
}

Result<FileRecord> SafetensorsWriter::finish() {
  const uint64_t wanted = header_.tensors.empty() ? 0 : header_.tensors.back().end;
  TRI_CHECK(appended_ == wanted, "{} of {} bytes were appended", appended_, wanted);
  TRI_TRY(flush());
  TRI_TRY(file_.sync_and_close());
  return FileRecord{file_name(file_.path()), file_.size(), crc_};
}

Result<SafetensorsReader> SafetensorsReader::open(std::string path) {
  Result<File> file = File::open(std::move(path));
  if (!file) return unexpected(file.error());
  if (file->size() < kLengthBytes) {
    return not_safetensors(file->path(), fmt::format("it has only {} bytes", file->size()));
  }
  uint64_t length = 0;
  TRI_TRY(file->read(0, std::as_writable_bytes(std::span(&length, 1))));
  if (length > kMaxHeaderBytes || length > file->size() - kLengthBytes) {
    return not_safetensors(
        file->path(),
        fmt::format("it announces a header of {} bytes and has {} in all", length, file->size()));
  }
  std::string json(length, '\0');
  TRI_TRY(file->read(kLengthBytes, std::as_writable_bytes(std::span(json))));
  const uint64_t data_begin = kLengthBytes + length;
  Result<Header> header = parse_header(json, file->size() - data_begin);
  if (!header) return not_safetensors(file->path(), header.error().message);
  return SafetensorsReader(std::move(*file), std::move(*header), data_begin);
}

const TensorInfo* SafetensorsReader::find(std::string_view name) const {
  const auto& all = header_.tensors;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const TensorInfo& tensor) { return tensor.name == name; });
  return found == all.end() ? nullptr : &*found;
}

Result<void> SafetensorsReader::read(const TensorInfo& tensor, uint64_t offset,
                                     std::span<std::byte> out) const {
  TRI_CHECK(offset <= tensor.bytes() && out.size() <= tensor.bytes() - offset,
            "'{}' has {} bytes, asked for [{}, +{})", tensor.name, tensor.bytes(), offset,
            out.size());
  return file_.read(data_begin_ + tensor.begin + offset, out);
}

}  // namespace tri::checkpoint
