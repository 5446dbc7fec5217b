#include "data/augment.h"

#include <fmt/format.h>

#include <charconv>

#include "data/name_list.h"

namespace tri::data {
namespace {

constexpr int kMost = 1024;  // pixels; more is a slip of the finger

// Reads `word` followed by a number of pixels.
bool parse_item(std::string_view item, std::string_view word, int& pixels) {
  if (!item.starts_with(word)) return false;
  item.remove_prefix(word.size());
  const char* end = item.data() + item.size();
  const auto [stop, error] = std::from_chars(item.data(), end, pixels);
  return error == std::errc() && stop == end && pixels >= 1 && pixels <= kMost;
}

}  // namespace

std::string Augment::text() const {
  std::string list;
  if (crop > 0) list += fmt::format(",crop{}", crop);
  if (flip) list += ",flip";
  if (cutout > 0) list += fmt::format(",cutout{}", cutout);
  return list.empty() ? "none" : list.substr(1);
}

Result<Augment> parse_augment(std::string_view text, const Augment& automatic) {
  if (text == "none") return Augment{};
  if (text == "auto") return automatic;
  Augment augment;
  for (const std::string& item : name_list(text, ',')) {
    if (item == "flip") {
      augment.flip = true;
    } else if (!parse_item(item, "crop", augment.crop) &&
               !parse_item(item, "cutout", augment.cutout)) {
      return unexpected(
          ErrorCode::kInvalid,
          fmt::format("--augment {}: `{}` is not known; write none, auto or a list of "
                      "cropN, flip and cutoutN with N from 1 to {}",
                      text, item, kMost));
    }
  }
  return augment;
}

}  // namespace tri::data
