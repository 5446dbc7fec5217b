#pragma once
// Room: checkpoint, tests only. A directory of its own for each test, removed at its end.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace tri::checkpoint {

class ScratchDirectory {
 public:
  // In memory where that is possible: hundreds of syncs of a disk would make the tests slow.
  ScratchDirectory() : ScratchDirectory(shared_memory()) {}
  explicit ScratchDirectory(const std::filesystem::path& parent) {
    std::string pattern = parent / "tri_checkpoint_XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  size_t entries() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_),
                                             std::filesystem::directory_iterator()));
  }

 private:
  static std::filesystem::path shared_memory() {
    return ::access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm"
                                                  : std::filesystem::temp_directory_path();
  }

  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

}  // namespace tri::checkpoint
