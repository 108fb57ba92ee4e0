// What this process may use of the machine: processors (affinity mask, CPU quota) and memory, where its control groups
// (containers) allow less than there is. `proc_cgroup` is the text of /proc/self/cgroup, `cgroup_root` where the
// hierarchies are mounted (/sys/fs/cgroup); versions 1 and 2 are read, and the strictest group on the way to the root counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dgem {

// In processors (cpu.max, cpu.cfs_quota_us); nothing if there is no quota.
std::optional<double> cgroup_cpu_quota(std::string_view proc_cgroup, const std::string& cgroup_root);
// In bytes (memory.max, memory.limit_in_bytes); nothing if there is no limit.
std::optional<uint64_t> cgroup_memory_limit(std::string_view proc_cgroup, const std::string& cgroup_root);

// At least 1. A fractional quota is rounded up.
int usable_processors();
// Bytes of the machine's memory, or of the limit if that is less.
uint64_t usable_memory();

}  // namespace dgem
