#include "train/machine.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

namespace tri::train {
namespace {

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

}  // namespace

Machine read_machine(const std::string& root) {
  Machine machine;
  size_t processors = 0;
  std::string package;
  std::set<std::pair<std::string, std::string>>
      cores;  // core numbers repeat from package to package

  // Lines are "key<tab>: value"; a block per logical processor, "physical id" before "core id".
  std::ifstream cpuinfo(std::filesystem::path(root) / "proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = trimmed(std::string_view(line).substr(0, colon));
    const std::string value = trimmed(std::string_view(line).substr(colon + 1));
    if (key == "processor") ++processors;
    if (key == "model name") machine.cpu = value;
    if (key == "physical id") package = value;
    if (key == "core id") cores.emplace(package, value);
  }
  machine.threads = std::max<size_t>(1, std::thread::hardware_concurrency());
  machine.cores = !cores.empty() ? cores.size() : std::max(processors, size_t{1});
  return machine;
}

}  // namespace tri::train
