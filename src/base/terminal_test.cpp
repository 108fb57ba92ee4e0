#include "base/terminal.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace dgem {
namespace {

using namespace std::chrono_literals;

class TemporaryStream {
 public:
  std::FILE* get() const { return file_.get(); }
  std::string text() const {
    std::rewind(file_.get());
    std::string out(4096, '\0');
    out.resize(std::fread(out.data(), 1, out.size(), file_.get()));
    return out;
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{std::tmpfile(), std::fclose};
};

TEST(Terminal, AFileIsNoTerminalAndHasNoColour) {
  const TemporaryStream stream;
  EXPECT_FALSE(is_terminal(stream.get()));
  EXPECT_FALSE(use_colour(stream.get()));
}

TEST(Terminal, HumanSize) {
  EXPECT_EQ(human_size(0), "0 B");
  EXPECT_EQ(human_size(999), "999 B");
  EXPECT_EQ(human_size(1000), "1.00 kB");
  EXPECT_EQ(human_size(9'994), "9.99 kB");
  EXPECT_EQ(human_size(9'996), "10.0 kB");
  EXPECT_EQ(human_size(99'960), "100 kB");
  EXPECT_EQ(human_size(999'499), "999 kB");
  EXPECT_EQ(human_size(999'500), "1.00 MB");
  EXPECT_EQ(human_size(18'800'000'000), "18.8 GB");
  EXPECT_EQ(human_size(UINT64_MAX), "18.4 EB");
}

TEST(Terminal, HumanDuration) {
  EXPECT_EQ(human_duration(-1), "0.0 s");
  EXPECT_EQ(human_duration(0.84), "0.8 s");
  EXPECT_EQ(human_duration(9.96), "10 s");
  EXPECT_EQ(human_duration(59.6), "1 min 00 s");
  EXPECT_EQ(human_duration(185), "3 min 05 s");
  EXPECT_EQ(human_duration(7620), "2 h 07 min");
}

TEST(Terminal, ProgressLine) {
  EXPECT_EQ(progress_line("copy", 7'900'000'000, 18'800'000'000, 10, ProgressUnit::kBytes),
            "copy: 42%, 7.90 GB of 18.8 GB, 790 MB/s, 14 s left");
  EXPECT_EQ(progress_line("layers", 15, 30, 3, ProgressUnit::kItems), "layers: 50%, 15 of 30, 5/s, 3.0 s left");
  EXPECT_EQ(progress_line("layers", 30, 30, 3, ProgressUnit::kItems), "layers: 100%, 30 of 30, 10/s");
  EXPECT_EQ(progress_line("layers", 0, 30, 3, ProgressUnit::kItems), "layers: 0%, 0 of 30");
  EXPECT_EQ(progress_line("tokens", 8, 0, 2, ProgressUnit::kItems), "tokens: 8, 4/s");
}

TEST(Terminal, ProgressIsSilentWhileItIsShort) {
  const TemporaryStream stream;
  {
    Progress progress("copy", 2, ProgressUnit::kItems,
                      {.stream = stream.get(), .terminal = false, .quiet = 1h, .every = 0ms});
    progress.advance(1);
    progress.advance(1);
  }
  EXPECT_EQ(stream.text(), "");
}

TEST(Terminal, ProgressWritesLinesToAFile) {
  const TemporaryStream stream;
  {
    Progress progress("copy", 2, ProgressUnit::kItems,
                      {.stream = stream.get(), .terminal = false, .quiet = 0ms, .every = 0ms});
    progress.advance(1);
    progress.advance(1);
  }
  const std::string text = stream.text();
  EXPECT_EQ(text.find("copy: 50%, 1 of 2, "), 0u) << text;
  EXPECT_NE(text.find("\ncopy: 100%, 2 of 2, "), text.npos) << text;
  EXPECT_NE(text.find("\ncopy: done in "), text.npos) << text;
  EXPECT_EQ(text.find('\r'), text.npos);
}

TEST(Terminal, ProgressRewritesOneLineOnATerminal) {
  const TemporaryStream stream;
  {
    Progress progress(std::string(200, 'x'), 2, ProgressUnit::kItems,
                      {.stream = stream.get(), .terminal = true, .quiet = 0ms, .every = 0ms});
    progress.advance(1);
  }
  EXPECT_EQ(stream.text(), "\r" + std::string(79, 'x') + "\x1b[K\r\x1b[K");  // cut to 80 columns less one, then removed
}

TEST(Terminal, ProgressCountsFromManyThreads) {
  const TemporaryStream stream;
  {
    Progress progress("copy", 4000, ProgressUnit::kItems,
                      {.stream = stream.get(), .terminal = false, .quiet = 0ms, .every = 1h});
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 1000; ++n) progress.advance(1);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::string text = stream.text();
  EXPECT_NE(text.find("copy: done in "), text.npos) << text;  // only once all 4000 are counted
}

}  // namespace
}  // namespace dgem
