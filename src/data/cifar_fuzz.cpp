// Any bytes as CIFAR files. The first byte picks the version and whether the rest is filled up to
// whole records.
#include "data/dataset.h"
#include "data/made_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tri::data;
  static const MadeFolder folder;
  static const MemoryFile file;
  static const bool linked = [] {
    for (const char* name :
         {"train.bin", "test.bin", "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
          "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
      file.link(folder, name);
    }
    return true;
  }();
  if (size == 0 || !linked) return 0;
  const bool hundred = (data[0] & 1) != 0;
  Bytes bytes(data + 1, data + size);
  const size_t record_bytes = hundred ? 3074 : 3073;
  if ((data[0] & 2) != 0) bytes.resize((bytes.size() / record_bytes + 1) * record_bytes, data[0]);
  file.write(bytes);

  const auto set = open_dataset((hundred ? "cifar100:" : "cifar10:") + folder.path());
  if (!set) return 0;
  Record record;
  for (uint64_t i = 0; i < set->train->info().count; ++i) {
    if (!set->train->read(i, record)) continue;
    TRI_CHECK(record.label >= 0 && record.label < set->train->info().classes());
    TRI_CHECK(record.pixels.size() == 3072);
  }
  return 0;
}
