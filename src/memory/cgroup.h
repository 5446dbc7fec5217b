#pragma once
// Room: memory, inside. The memory limits of the control groups above this process, as its own
// files show them: /proc/self/cgroup names the group, /proc/self/mountinfo the place where groups
// lie.
#include <filesystem>

#include "memory/probes.h"

namespace tri::memory {

// The tightest limit of `source` from the process's own group up to the mount point.
// REQUIRES: source is one of the three of control groups.
Limit cgroup_limit(const std::filesystem::path& root, Limit::Source source);

}  // namespace tri::memory
