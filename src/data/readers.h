#pragma once
// Room: data. The open functions of reader_list.inc.
#include "data/dataset.h"

namespace tri::data {

#define TRI_READER(name, open, fallback, syntax, text) \
  Result<Parts> open(const ReaderRequest& request);
#include "data/reader_list.inc"
#undef TRI_READER

}  // namespace tri::data
