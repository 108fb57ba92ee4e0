// What a person at a terminal sees: colours, sizes and times to read, and the progress of what takes long.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>

namespace dgem {

bool is_terminal(std::FILE* stream);

// Only on a terminal that is not "dumb", and not where NO_COLOR is set to anything (no-color.org).
bool use_colour(std::FILE* stream);

// In decimal units with three digits: "512 B", "18.8 GB", "1.20 TB".
std::string human_size(uint64_t bytes);

// "0.8 s", "12 s", "3 min 05 s", "2 h 07 min". Negative values count as zero.
std::string human_duration(double seconds);

enum class ProgressUnit { kBytes, kItems };

// One line of progress after `seconds` of work: "label: 42%, 7.90 GB of 18.8 GB, 1.20 GB/s, 9 s left".
std::string progress_line(const std::string& label, uint64_t done, uint64_t total, double seconds, ProgressUnit unit);

// Shows how far something is, on standard error and only once it has taken two seconds: on a terminal one line that is
// rewritten and at last removed, elsewhere a line every few seconds and one at the end.
class Progress {
 public:
  struct Options {
    std::FILE* stream = stderr;
    bool terminal = is_terminal(stderr);
    std::chrono::milliseconds quiet{2000};  // before the first line
    std::chrono::milliseconds every = terminal ? std::chrono::milliseconds{200} : std::chrono::milliseconds{5000};
  };

  Progress(std::string label, uint64_t total, ProgressUnit unit);
  Progress(std::string label, uint64_t total, ProgressUnit unit, Options options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // More is done. From any thread.
  void advance(uint64_t amount);

 private:
  using Clock = std::chrono::steady_clock;
  void show(const std::string& line);

  const std::string label_;
  const uint64_t total_;
  const ProgressUnit unit_;
  const Options options_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<uint64_t> done_{0};
  std::atomic<Clock::rep> next_;  // when the next line is due, since the clock's epoch
  std::mutex mutex_;
  bool shown_ = false;  // under mutex_
};

}  // namespace dgem
