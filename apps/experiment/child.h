#pragma once
// apps/experiment. This program once more, as a process of its own: its peak of memory is its own,
// and a crash ends only it. In: arguments. Out: what it printed on standard output and how it
// ended.
#include <string>
#include <vector>

#include "tri/result.h"

namespace tri::experiment {

struct ChildEnd {
  int exit_code = 0;  // 128 + signal where one ended it
  std::string output;
  int stop_signal = 0;  // SIGINT or SIGTERM that this process was sent meanwhile, and handed on
};

// Waits for the child. Its standard error is ours.
Result<ChildEnd> run_child(const std::vector<std::string>& arguments);

// As a user would type it.
std::string command_line(const std::vector<std::string>& arguments);

}  // namespace tri::experiment
