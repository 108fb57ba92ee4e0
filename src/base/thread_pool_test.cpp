#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace dgem {
namespace {

TEST(ThreadPool, RunsEveryPartOnce) {
  for (const int threads : {1, 2, 3, 4, 9}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int run = 0; run < 300; ++run) {
      const int parts = run % 3 == 0 ? run : run % 7;
      std::vector<int> runs(static_cast<size_t>(parts), 0);  // plain ints: ThreadSanitizer sees a part run twice
      std::vector<int> wrong_thread(static_cast<size_t>(parts), 0);
      pool.run(parts, [&](int part, int thread) {
        ++runs[static_cast<size_t>(part)];
        wrong_thread[static_cast<size_t>(part)] = thread < 0 || thread >= threads;
      });
      ASSERT_EQ(std::count(runs.begin(), runs.end(), 1), parts) << threads << " threads, run " << run;
      ASSERT_EQ(std::count(wrong_thread.begin(), wrong_thread.end(), 1), 0);
    }
  }
}

TEST(ThreadPool, ThreadNumbersAreExclusive) {
  ThreadPool pool(4);
  std::vector<int> per_thread(4, 0);  // each written without a lock by the thread whose number it is
  for (int run = 0; run < 200; ++run) pool.run(16, [&](int, int thread) { ++per_thread[static_cast<size_t>(thread)]; });
  EXPECT_EQ(per_thread[0] + per_thread[1] + per_thread[2] + per_thread[3], 200 * 16);
}

// Back-to-back jobs of different sizes with their state on the stack: a worker late from one job must not touch the next
// with the old state, nor the old state after its job ended.
TEST(ThreadPool, LateWorkersTakeOnlyPartsOfTheCurrentJob) {
  ThreadPool pool(4);
  for (int run = 0; run < 5000; ++run) {
    const int parts = 2 + run % 5;
    std::atomic<int> sum{0};
    const int expected_run = run;
    pool.run(parts, [&sum, &run, expected_run](int part, int) {
      if (run == expected_run) sum += part + 1;
    });
    ASSERT_EQ(sum.load(), parts * (parts + 1) / 2) << run;
  }
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(3);
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // far longer than workers poll
    // Each part waits for the others, so that the job ends only if all three threads take part.
    std::atomic<int> arrived{0};
    pool.run(3, [&](int, int) {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 3);
  }
}

TEST(ThreadPool, ManyPoolsStartAndStop) {
  std::atomic<int> parts{0};
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 4);
    if (i % 2 == 0) pool.run(5, [&](int, int) { ++parts; });
  }
  EXPECT_EQ(parts, 25 * 5);
}

TEST(ThreadPool, NoPartsNoCalls) {
  ThreadPool pool(2);
  pool.run(0, [](int, int) { FAIL(); });
  pool.run(-1, [](int, int) { FAIL(); });
}

TEST(ThreadPool, DefaultsToTheUsableProcessors) {
  EXPECT_GE(ThreadPool::usable_processors(), 1);
  EXPECT_EQ(ThreadPool().size(), ThreadPool::usable_processors());
}

}  // namespace
}  // namespace dgem
