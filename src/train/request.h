#pragma once
// Room: train. The reading side of tri/run_request.h. In: the control.json of a run. Out: each
// request once. Does not know what a request does.
#include <sys/types.h>

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>

namespace tri::train {

struct Request {
  std::string memory;   // base::parse_size() reads it
  uint64_t serial = 0;  // 1, 2, ... within a run

  bool operator==(const Request&) const = default;
};

// Asks the file system between steps. Not thread-safe.
class RequestReader {
 public:
  // Requests up to `last_serial` were met already: what a resumed run keeps in its state.
  explicit RequestReader(std::string path, uint64_t last_serial = 0)
      : path_(std::move(path)), last_serial_(last_serial) {}

  // The newest request that has not been returned yet. Costs one stat() where nothing has changed.
  // A file that is no request counts as none.
  std::optional<Request> poll();

  // Of the newest request so far.
  uint64_t serial() const { return last_serial_; }

 private:
  // Every request is a new file that takes the place of the old one.
  struct Identity {
    ino_t inode = 0;
    off_t bytes = -1;
    int64_t changed_ns = 0;
    bool operator==(const Identity&) const = default;
  };

  std::string path_;
  uint64_t last_serial_;
  Identity seen_;
};

}  // namespace tri::train
