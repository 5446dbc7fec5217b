#pragma once
// Room: checkpoint. A directory that is complete or absent. In: files, written one by one. Out: the
// same files under the final name, at once. Knows names, sizes and checksums, not what files mean.
//
// Note [Commit protocol]
// DIR is written as DIR.tmp-PID, every file and the directory synced, then the two directories
// change names in one system call (rename if there is no old one) and what is now the old one is
// removed. Where the file system cannot exchange: DIR -> DIR.old, DIR.tmp-PID -> DIR, remove
// DIR.old; a kill between the first two leaves DIR.old, which is put back by whoever opens DIR
// next. So at every moment one complete checkpoint is found. A writer keeps a lock on its temporary
// directory that ends with the process: a temporary that can be locked is stale and is removed.
// Beside one that cannot, DIR.old is left where it is, and read there if DIR is missing.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/safetensors.h"
#include "tri/result.h"

namespace tri::checkpoint {

inline constexpr std::string_view kManifest = "manifest.json";

// A point of the protocol; the test of a kill stops there.
enum class CommitStep : uint8_t {
  kCreated,       // an empty temporary
  kWritten,       // all files, not yet synced as a directory
  kSynced,        // complete, under its temporary name
  kMovedAside,    // without exchange only: the old one is DIR.old and there is no DIR
  kInPlace,       // the new one is DIR, the old one still there
  kParentSynced,  // the same, and it survives a power failure
  kDone,          // the old one is gone
};

struct CommitOptions {
  bool exchange = true;  // false: as on a file system that has no RENAME_EXCHANGE
  std::function<void(CommitStep)> at_step;
};

// Not committed means nothing happened: the destructor removes the temporary.
class DirectoryWriter {
 public:
  // Cleans up after earlier writers and makes the temporary. `path` is the final name; its parent
  // must exist. Refuses to replace what is not a checkpoint.
  static Result<DirectoryWriter> begin(std::string path, CommitOptions options = {});

  DirectoryWriter(DirectoryWriter&& other) noexcept;
  DirectoryWriter& operator=(DirectoryWriter&&) = delete;
  ~DirectoryWriter();

  // Where to write the file `name` now; then add() its record.
  std::string file(std::string_view name) const;
  void add(FileRecord record);
  // Writes a small file, for example state.json, and adds it.
  Result<void> write(std::string_view name, std::string_view content);

  // REQUIRES: each file was added once. After an error the old checkpoint is as it was, unless it
  // was the last sync that failed: then the new one is in place.
  Result<void> commit();

 private:
  DirectoryWriter(std::string path, std::string temporary, int lock, CommitOptions options);
  Result<void> write_manifest();
  Result<void> swap_in();
  void reached(CommitStep step) const;

  std::string path_;
  std::string temporary_;  // empty once committed or moved from
  int lock_ = -1;
  CommitOptions options_;
  std::vector<FileRecord> files_;
};

class Directory {
 public:
  // Undoes an interrupted swap, removes stale temporaries and checks that every file of the
  // manifest is there in its full length.
  static Result<Directory> open(std::string path);

  const std::string& path() const { return path_; }
  const std::vector<FileRecord>& files() const { return files_; }
  std::string file(std::string_view name) const;
  Result<std::string> read(std::string_view name) const;  // a small file, checksum verified

  // Reads every file in pieces and compares checksums; names the first damaged one.
  Result<void> verify() const;

 private:
  Directory(std::string path, std::vector<FileRecord> files)
      : path_(std::move(path)), files_(std::move(files)) {}

  std::string path_;
  std::vector<FileRecord> files_;
};

// Leaves at most DIR itself and temporaries of living writers. Directory::open and
// DirectoryWriter::begin do this on their own.
Result<void> repair(const std::string& path);

}  // namespace tri::checkpoint
