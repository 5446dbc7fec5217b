#pragma once
// Room: data. Class names as readers write them down: one text, names apart by `separator`.
#include <string>
#include <string_view>
#include <vector>

namespace tri::data {

inline std::vector<std::string> name_list(std::string_view text, char separator = ' ') {
  std::vector<std::string> names;
  while (true) {
    const size_t end = text.find(separator);
    names.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return names;
    text.remove_prefix(end + 1);
  }
}

}  // namespace tri::data
