// A fixed set of threads that run the parts of one job at a time. The caller is thread 0 and works too.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace dgem {

// A reference to a callable void(int part, int thread), without allocation.
class PartFunction {
 public:
  template <class F>
  PartFunction(F& f)  // NOLINT: implicit on purpose
      : object_(const_cast<void*>(static_cast<const void*>(&f))),
        call_([](void* o, int part, int thread) { (*static_cast<std::remove_reference_t<F>*>(o))(part, thread); }) {}
  void operator()(int part, int thread) const { call_(object_, part, thread); }

 private:
  void* object_;
  void (*call_)(void*, int, int);
};

class ThreadPool {
 public:
  // threads >= 1; 0 means one for each processor that this process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(part, thread) once for each part in [0, parts), on any thread and in any order, and returns when all are
  // done. Parts must not throw. Not reentrant; one caller at a time.
  template <class F>
  void run(int parts, F&& f) {
    if (parts <= 0) return;
    if (parts == 1 || workers_.empty()) {
      for (int i = 0; i < parts; ++i) f(i, 0);
      return;
    }
    run_parts(parts, PartFunction(f));
  }

  // Processors that the process may use (affinity mask and container quota).
  static int usable_processors();

 private:
  void run_parts(int parts, PartFunction f);
  void work(int thread);
  void take_parts(int thread);

  std::vector<std::thread> workers_;
  std::chrono::microseconds spin_{0};  // how long a thread polls before it sleeps or yields
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;                  // under mutex_
  const PartFunction* job_ = nullptr;  // job_ and parts_ are published by remaining_
  int parts_ = 0;
  alignas(64) std::atomic<int64_t> remaining_{0};  // parts that no thread has claimed; may fall below zero
  alignas(64) std::atomic<int> unfinished_{0};     // parts that are not known to be done
  alignas(64) std::atomic<int> sleeping_{0};       // workers on wake_, or about to be
};

}  // namespace dgem
