#include "base/thread_pool.h"

#include "base/limits.h"
#include "base/result.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace dgem {

namespace {

// Long enough to bridge the caller's work between two jobs of one forward pass, short enough not to burn idle time.
constexpr std::chrono::microseconds kSpin{50};

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls for up to `limit`; returns whether the condition came true.
template <class Condition>
bool spin_until(std::chrono::microseconds limit, Condition condition) {
  if (condition()) return true;
  const auto end = std::chrono::steady_clock::now() + limit;
  do {
    for (int i = 0; i < 64; ++i) {
      if (condition()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

int ThreadPool::usable_processors() { return dgem::usable_processors(); }

ThreadPool::ThreadPool(int threads) {
  DGEM_CHECK(threads >= 0, "{} threads", threads);
  const int processors = usable_processors();
  if (threads == 0) threads = processors;
  // With more threads than processors, a spinning thread would only keep a working one from running.
  spin_ = threads <= processors ? kSpin : std::chrono::microseconds{0};
  workers_.reserve(static_cast<size_t>(threads) - 1);
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

// Why a worker that wakes late does no harm: job_ and parts_ are read only after a part was claimed, and a claimed part
// is unfinished, so run_parts() of that same job has not returned and nothing has been overwritten. A claim that finds
// no part left takes remaining_ below zero, which the next job's store undoes.
void ThreadPool::run_parts(int parts, PartFunction f) {
  job_ = &f;
  parts_ = parts;
  unfinished_.store(parts, std::memory_order_relaxed);
  // Sequentially consistent with work(): either this thread sees the sleeper, or the sleeper sees the parts.
  remaining_.store(parts, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard lock(mutex_); }  // a worker is now either before its last look or truly asleep
    wake_.notify_all();
  }
  take_parts(0);
  const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (spin_until(spin_, done)) return;
  while (!done()) std::this_thread::yield();
}

void ThreadPool::take_parts(int thread) {
  int finished = 0;
  while (remaining_.load(std::memory_order_relaxed) > 0) {
    const int64_t claimed = remaining_.fetch_sub(1, std::memory_order_acquire);
    if (claimed <= 0) break;
    (*job_)(parts_ - static_cast<int>(claimed), thread);
    ++finished;
  }
  // All of these were parts of one job: it cannot have ended before they are counted here.
  if (finished > 0) unfinished_.fetch_sub(finished, std::memory_order_release);
}

void ThreadPool::work(int thread) {
  const auto has_parts = [this] { return remaining_.load(std::memory_order_seq_cst) > 0; };
  for (;;) {
    if (!spin_until(spin_, has_parts)) {
      std::unique_lock lock(mutex_);
      sleeping_.fetch_add(1, std::memory_order_seq_cst);
      wake_.wait(lock, [&] { return stop_ || has_parts(); });
      sleeping_.fetch_sub(1, std::memory_order_relaxed);
      if (stop_) return;
    }
    take_parts(thread);
  }
}

}  // namespace dgem
