// Ctrl-C as a flag, for commands that must clean up what they were writing.
#pragma once

#include <atomic>
#include <csignal>

namespace dgem::cli {

// While this lives, SIGINT, SIGTERM and SIGHUP set the flag; a second one ends the process at once.
class Interrupt {
 public:
  Interrupt() {
    for (int i = 0; i < 3; ++i) old_[i] = std::signal(kSignals[i], on_signal);
  }
  ~Interrupt() {
    for (int i = 0; i < 3; ++i) std::signal(kSignals[i], old_[i]);
  }
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>& flag() const { return flag_; }

 private:
  static void on_signal(int signal) {
    flag_.store(true, std::memory_order_relaxed);
    std::signal(signal, SIG_DFL);
  }

  static constexpr int kSignals[3] = {SIGINT, SIGTERM, SIGHUP};
  static_assert(std::atomic<bool>::is_always_lock_free);
  static inline std::atomic<bool> flag_{false};
  void (*old_[3])(int) = {};
};

}  // namespace dgem::cli
