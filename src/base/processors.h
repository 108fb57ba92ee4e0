// How many processors this process may use: the affinity mask, and the CPU quota of its control groups (containers).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dgem {

// The smallest CPU quota, in processors, on the way from this process's control group to the root; nothing if there is
// no quota. `proc_cgroup` is the text of /proc/self/cgroup, `cgroup_root` where the hierarchies are mounted
// (/sys/fs/cgroup). Version 2 (cpu.max) and version 1 (cpu.cfs_quota_us) are read.
std::optional<double> cgroup_cpu_quota(std::string_view proc_cgroup, const std::string& cgroup_root);

// At least 1. A fractional quota is rounded up.
int usable_processors();

}  // namespace dgem
