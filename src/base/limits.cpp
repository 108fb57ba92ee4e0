#include "base/limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <thread>

namespace dgem {

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Quota and period are in microseconds; a quota that is "max" or negative is none.
std::optional<double> processors_of(const std::string& quota_and_period) {
  std::istringstream in(quota_and_period);
  double quota = 0, period = 0;
  if (!(in >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

bool has_controller(std::string_view controllers, std::string_view wanted) {
  std::istringstream in{std::string(controllers)};
  for (std::string name; std::getline(in, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

// The smallest of what read(folder, version2) gives for the groups of a controller, from the process's own to the root.
template <class T, class Read>
std::optional<T> smallest_of_groups(std::string_view proc_cgroup, const std::string& cgroup_root,
                                    const std::string& controller, Read&& read) {
  std::optional<T> smallest;
  std::istringstream lines{std::string(proc_cgroup)};
  for (std::string line; std::getline(lines, line);) {  // "hierarchy:controllers:path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const bool version2 = controllers.empty();
    if (!version2 && !has_controller(controllers, controller)) continue;
    const std::string mount = cgroup_root + (version2 ? "" : "/" + controller);
    // A container may see a path of the host that does not exist inside; the walk then ends at its own root.
    while (true) {
      if (path == "/") path.clear();
      if (const std::optional<T> value = read(mount + path, version2))
        smallest = smallest ? std::min(*smallest, *value) : *value;
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return smallest;
}

int processors_in_affinity_mask() {
  // The mask grows until the kernel's fits; 1024 processors are not the most a machine may have.
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    cpu_set_t* set = CPU_ALLOC(size);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(size);
    CPU_ZERO_S(bytes, set);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

std::optional<double> cgroup_cpu_quota(std::string_view proc_cgroup, const std::string& cgroup_root) {
  return smallest_of_groups<double>(proc_cgroup, cgroup_root, "cpu", [](const std::string& folder, bool version2) {
    if (version2) return processors_of(read_text(folder + "/cpu.max"));
    return processors_of(read_text(folder + "/cpu.cfs_quota_us") + " " + read_text(folder + "/cpu.cfs_period_us"));
  });
}

std::optional<uint64_t> cgroup_memory_limit(std::string_view proc_cgroup, const std::string& cgroup_root) {
  return smallest_of_groups<uint64_t>(
      proc_cgroup, cgroup_root, "memory", [](const std::string& folder, bool version2) -> std::optional<uint64_t> {
        std::istringstream in(read_text(folder + (version2 ? "/memory.max" : "/memory.limit_in_bytes")));
        uint64_t limit = 0;
        if (!(in >> limit) || limit == 0) return std::nullopt;  // "max" is none
        return limit;
      });
}

int usable_processors() {
  const int allowed = processors_in_affinity_mask();
  const auto quota = cgroup_cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (!quota) return allowed;
  return std::clamp(static_cast<int>(std::ceil(std::min(*quota, 1e6))), 1, allowed);
}

uint64_t usable_memory() {
  const uint64_t machine = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto limit = cgroup_memory_limit(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  return limit ? std::min(*limit, machine) : machine;
}

}  // namespace dgem
