#include "base/terminal.h"

#include <fmt/format.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace dgem {

namespace {

// Cut before the code point that would pass `columns`, so that the terminal does not wrap the line.
std::string cut(std::string text, size_t columns) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_code_point = (static_cast<unsigned char>(text[i]) & 0xc0u) != 0x80u;
    if (starts_code_point && ++width > columns) return text.substr(0, i);
  }
  return text;
}

size_t terminal_columns(std::FILE* stream) {
  winsize size{};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

bool use_colour(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  return is_terminal(stream);
}

std::string human_size(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  constexpr std::array<const char*, 6> kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000;
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;  // 999.5 would round to four digits
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::string human_duration(double seconds) {
  seconds = std::clamp(seconds, 0.0, 1e9);
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(std::lround(seconds));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string progress_line(const std::string& label, uint64_t done, uint64_t total, double seconds, ProgressUnit unit) {
  const bool bytes = unit == ProgressUnit::kBytes;
  const auto amount = [&](uint64_t n) { return bytes ? human_size(n) : fmt::format("{}", n); };
  std::string line = fmt::format("{}: ", label);
  if (total > 0) {
    const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
    line += fmt::format("{:.0f}%, {} of {}", std::floor(100 * share), amount(done), amount(total));
  } else {
    line += amount(done);
  }
  if (done == 0 || seconds <= 0) return line;
  const double rate = static_cast<double>(done) / seconds;
  line += bytes ? fmt::format(", {}/s", human_size(static_cast<uint64_t>(std::min(rate, 1e18))))
                : fmt::format(", {:.3g}/s", rate);
  if (done < total) line += fmt::format(", {} left", human_duration(static_cast<double>(total - done) / rate));
  return line;
}

Progress::Progress(std::string label, uint64_t total, ProgressUnit unit)
    : Progress(std::move(label), total, unit, Options{}) {}

Progress::Progress(std::string label, uint64_t total, ProgressUnit unit, Options options)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      options_(options),
      next_((start_ + options.quiet).time_since_epoch().count()) {}

Progress::~Progress() {
  if (!shown_) return;
  if (options_.terminal) {
    std::fputs("\r\x1b[K", options_.stream);
    std::fflush(options_.stream);
  } else if (done_ >= total_) {
    show(
        fmt::format("{}: done in {}", label_, human_duration(std::chrono::duration<double>(Clock::now() - start_).count())));
  }
}

void Progress::advance(uint64_t amount) {
  done_.fetch_add(amount, std::memory_order_relaxed);
  const Clock::time_point now = Clock::now();
  if (now.time_since_epoch().count() < next_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || now.time_since_epoch().count() < next_.load(std::memory_order_relaxed)) return;
  next_.store((now + options_.every).time_since_epoch().count(), std::memory_order_relaxed);
  show(progress_line(label_, done_, total_, std::chrono::duration<double>(now - start_).count(), unit_));
  shown_ = true;
}

void Progress::show(const std::string& line) {
  if (options_.terminal) {
    std::fprintf(options_.stream, "\r%s\x1b[K", cut(line, terminal_columns(options_.stream) - 1).c_str());
  } else {
    std::fprintf(options_.stream, "%s\n", line.c_str());
  }
  std::fflush(options_.stream);
}

}  // namespace dgem
