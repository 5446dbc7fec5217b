// Any bytes as IDX files. The first byte picks whether the second one cuts raw bytes into images
// and labels, or whether triples patch good files, plain or packed.
#include "data/dataset.h"
#include "data/made_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tri::data;
  static const MadeFolder folder;
  static const MemoryFile images, labels;
  static const bool linked = [] {
    for (const char* stem : {"train", "t10k"}) {
      images.link(folder, std::string(stem) + "-images-idx3-ubyte");
      labels.link(folder, std::string(stem) + "-labels-idx1-ubyte");
    }
    return true;
  }();
  if (size < 2 || !linked) return 0;
  const std::span<const uint8_t> rest(data + 2, size - 2);
  Bytes image_bytes = big_endian({0x803, 3, 2, 2}), label_bytes = big_endian({0x801, 3});
  image_bytes += {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  label_bytes += {0, 9, 5};
  if (data[0] % 4 == 0) {
    const auto cut = static_cast<std::ptrdiff_t>(data[1] * rest.size() / 255);
    image_bytes.assign(rest.begin(), rest.begin() + cut);
    label_bytes.assign(rest.begin() + cut, rest.end());
  } else {
    if (data[0] % 4 == 1) image_bytes = gzipped(image_bytes);
    patch(data[0] % 4 == 2 ? label_bytes : image_bytes, rest);
    if (data[0] % 4 == 3) image_bytes = gzipped(image_bytes);
  }
  images.write(image_bytes);
  labels.write(label_bytes);

  const auto set = open_dataset("mnist:" + folder.path());
  if (!set) return 0;
  Record record;
  for (uint64_t i = 0; i < set->train->info().count; ++i) {
    TRI_CHECK(set->train->read(i, record).has_value());  // all was checked when it was opened
    TRI_CHECK(record.label >= 0 && record.label < 10, "label = {}", record.label);
  }
  return 0;
}
