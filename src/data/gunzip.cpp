#include "data/gunzip.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tri::data {
namespace {

constexpr size_t kChunk = 64 << 10;

Result<int> open_nameless(const std::string& folder) {
  int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
  if (descriptor < 0) {  // some file systems (NFS, old overlays) have no O_TMPFILE
    std::string name = folder + "/triaccel-XXXXXX";
    descriptor = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor >= 0) ::unlink(name.c_str());
  }
  if (descriptor < 0) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("cannot create a temporary file in {}: {}; set TMPDIR to a "
                                  "folder with space, or unpack the .gz files",
                                  folder, std::strerror(errno)));
  }
  return descriptor;
}

Result<void> write_all(int descriptor, std::span<const uint8_t> bytes, const std::string& folder) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("cannot unpack into {}: {}; set TMPDIR to a folder with space, "
                                    "or unpack the .gz files",
                                    folder, std::strerror(errno)));
    }
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return {};
}

Unexpected corrupt(const File& packed, const char* why) {
  return unexpected(ErrorCode::kFailed,
                    fmt::format("{} is corrupt: {}; fetch it again", packed.path(), why));
}

// zlib's state, freed on every way out.
struct Inflater {
  z_stream stream = {};
  bool good = ::inflateInit2(&stream, 15 + 16) == Z_OK;  // + 16: the gzip wrapper with its CRC
  Inflater() = default;
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { ::inflateEnd(&stream); }
};

Result<void> unpack(const File& packed, int descriptor, const std::string& folder,
                    const std::function<Result<uint64_t>(std::span<const uint8_t>)>& size_of) {
  Inflater inflater;
  if (!inflater.good) return corrupt(packed, "zlib refused to start");
  z_stream& stream = inflater.stream;
  std::vector<uint8_t> in(kChunk), out(kChunk);
  uint64_t consumed = 0, written = 0, expected = 0;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    stream.next_out = out.data();
    stream.avail_out = kChunk;
    while (stream.avail_out > 0 && status != Z_STREAM_END) {
      if (stream.avail_in == 0) {
        const auto got = packed.read_some(consumed, in);
        if (!got) return unexpected(got.error());
        if (*got == 0) return corrupt(packed, "it ends too early");
        consumed += *got;
        stream.next_in = in.data();
        stream.avail_in = static_cast<uInt>(*got);
      }
      status = ::inflate(&stream, Z_NO_FLUSH);
      if (status != Z_OK && status != Z_STREAM_END) {
        return corrupt(packed, stream.msg != nullptr ? stream.msg : "not a deflate stream");
      }
    }
    const std::span<const uint8_t> made(out.data(), kChunk - stream.avail_out);
    if (written == 0) {
      const auto size = size_of(made);
      if (!size) return unexpected(size.error());
      expected = *size;
    }
    written += made.size();
    if (written > expected) return corrupt(packed, "it holds more than its header says");
    TRI_TRY(write_all(descriptor, made, folder));
  }
  if (written != expected) return corrupt(packed, "it holds less than its header says");
  return {};
}

}  // namespace

bool is_gzip(const File& file) {
  std::array<uint8_t, 2> magic = {};
  return file.read(0, magic).has_value() && magic[0] == 0x1f && magic[1] == 0x8b;
}

Result<File> gunzip(const File& packed,
                    const std::function<Result<uint64_t>(std::span<const uint8_t>)>& size_of) {
  const char* chosen = std::getenv("TMPDIR");
  const std::string folder = chosen != nullptr && *chosen != 0 ? chosen : "/tmp";
  const auto descriptor = open_nameless(folder);
  if (!descriptor) return unexpected(descriptor.error());
  if (const auto done = unpack(packed, *descriptor, folder, size_of); !done) {
    ::close(*descriptor);
    return unexpected(done.error());
  }
  return File::adopt(*descriptor, packed.path());
}

}  // namespace tri::data
