#include "base/processors.h"

#include <sched.h>

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

std::optional<double> quota_of_group(const std::string& folder, bool version2) {
  if (version2) return processors_of(read_text(folder + "/cpu.max"));
  return processors_of(read_text(folder + "/cpu.cfs_quota_us") + " " + read_text(folder + "/cpu.cfs_period_us"));
}

bool has_cpu_controller(std::string_view controllers) {
  std::istringstream in{std::string(controllers)};
  for (std::string name; std::getline(in, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
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
  std::optional<double> smallest;
  std::istringstream lines{std::string(proc_cgroup)};
  for (std::string line; std::getline(lines, line);) {  // "hierarchy:controllers:path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    const bool version2 = controllers.empty();
    if (!version2 && !has_cpu_controller(controllers)) continue;
    const std::string mount = cgroup_root + (version2 ? "" : "/cpu");
    // A container may see a path of the host that does not exist inside; the walk then ends at its own root.
    while (true) {
      if (path == "/") path.clear();
      if (const auto quota = quota_of_group(mount + path, version2)) {
        smallest = smallest ? std::min(*smallest, *quota) : *quota;
      }
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return smallest;
}

int usable_processors() {
  const int allowed = processors_in_affinity_mask();
  const auto quota = cgroup_cpu_quota(read_text("/proc/self/cgroup"), "/sys/fs/cgroup");
  if (!quota) return allowed;
  return std::clamp(static_cast<int>(std::ceil(std::min(*quota, 1e6))), 1, allowed);
}

}  // namespace dgem
