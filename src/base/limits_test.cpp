#include "base/limits.h"

#include "base/test_files.h"

#include <gtest/gtest.h>

namespace dgem {
namespace {

TEST(Limits, Version2TakesTheSmallestQuotaOnTheWayUp) {
  const TestFolder root;
  root.write("cpu.max", "800000 100000\n");
  root.write("a/cpu.max", "150000 100000\n");
  root.write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota("0::/a/b\n", root.path()), 1.5);
  EXPECT_EQ(cgroup_cpu_quota("0::/\n", root.path()), 8.0);
  EXPECT_EQ(cgroup_cpu_quota("0::/path/of/the/host\n", root.path()), 8.0);
}

TEST(Limits, Version1) {
  const TestFolder root;
  root.write("cpu/job/cpu.cfs_quota_us", "300000\n");
  root.write("cpu/job/cpu.cfs_period_us", "100000\n");
  root.write("cpu/free/cpu.cfs_quota_us", "-1\n");
  root.write("cpu/free/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota("5:memory:/job\n4:cpu,cpuacct:/job\n", root.path()), 3.0);
  EXPECT_EQ(cgroup_cpu_quota("4:cpu,cpuacct:/free\n", root.path()), std::nullopt);
  EXPECT_EQ(cgroup_cpu_quota("3:cpuset:/job\n", root.path()), std::nullopt);
}

TEST(Limits, NothingUsefulMeansNoQuota) {
  const TestFolder root;
  root.write("cpu.max", "garbage\n");
  for (const char* text : {"", "\n", "0::/\n", "0:\n", ":::\n", "x"}) {
    EXPECT_EQ(cgroup_cpu_quota(text, root.path()), std::nullopt) << text;
  }
  EXPECT_GE(usable_processors(), 1);
}

TEST(Limits, MemoryOfBothVersions) {
  const TestFolder root;
  root.write("memory.max", "max\n");
  root.write("a/memory.max", "2000000000\n");
  root.write("a/b/memory.max", "3000000000\n");
  root.write("memory/job/memory.limit_in_bytes", "1000000\n");
  EXPECT_EQ(cgroup_memory_limit("0::/a/b\n", root.path()), 2000000000u);
  EXPECT_EQ(cgroup_memory_limit("0::/\n", root.path()), std::nullopt);
  EXPECT_EQ(cgroup_memory_limit("5:memory:/job\n", root.path()), 1000000u);
  EXPECT_EQ(cgroup_memory_limit("5:cpu:/job\n", root.path()), std::nullopt);
  EXPECT_GT(usable_memory(), uint64_t{1} << 20);
}

}  // namespace
}  // namespace dgem
