#pragma once
// apps/report. In: the directories of runs. Out: one HTML page that needs no network. Sees only the
// files of a run, so it works for a run in progress, an interrupted one and one from elsewhere.
#include <string>
#include <vector>

#include "tri/result.h"

namespace tri::report {

// Reads runs line by line and writes in small pieces: about a megabyte of memory, however long the
// runs were, so that train can call it under its ceiling. What a run lacks is left out of the page
// and said there. Fails with kInvalid where a directory is no run, with kFailed where `path` cannot
// be written; then a file that was there before is unchanged.
Result<void> write_report(const std::vector<std::string>& directories, const std::string& path);

}  // namespace tri::report
