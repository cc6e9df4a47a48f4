#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>

namespace ringdist {
namespace {

constexpr size_t kPage = 4096;

// Replaces stderr with a pipe that nobody reads, until it is destroyed.
class FullPipe {
 public:
  explicit FullPipe(size_t free_bytes) : stderr_(dup(STDERR_FILENO)) {
    EXPECT_EQ(pipe(ends_.data()), 0);
    fcntl(ends_[1], F_SETPIPE_SZ,
          static_cast<int>(16 * kPage));  // a user with many pipes gets smaller ones
    const auto capacity = static_cast<size_t>(fcntl(ends_[1], F_GETPIPE_SZ));
    EXPECT_GE(capacity, free_bytes);
    const std::string filling(capacity - free_bytes, 'f');
    EXPECT_EQ(write(ends_[1], filling.data(), filling.size()),
              static_cast<ssize_t>(filling.size()));
    dup2(ends_[1], STDERR_FILENO);
    close(ends_[1]);
  }
  ~FullPipe() {
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    close(ends_[0]);
  }
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;

  // Returns all that was written. Call it once.
  std::string read_all() {
    close(STDERR_FILENO);
    std::string out;
    std::array<char, kPage> buffer{};
    for (ssize_t got = 0; (got = read(ends_[0], buffer.data(), buffer.size())) > 0;)
      out.append(buffer.data(), static_cast<size_t>(got));
    return out;
  }

 private:
  const int stderr_;
  std::array<int, 2> ends_{};
};

TEST(Log, ALineThatAPipeDoesNotTakeWholeIsCut) {
  for (const size_t free_bytes : {kPage, 2 * kPage, 8 * kPage}) {
    FullPipe pipe(free_bytes);
    log(LogLevel::kError, std::string(4 * kPage, 'x'));  // a blocked write would never return
    const std::string text = pipe.read_all();
    EXPECT_EQ(text.find("[ringdist "), text.find_first_not_of('f'));
    EXPECT_EQ(text.ends_with('\n'), free_bytes == 8 * kPage);
  }
}

// Returns what one line of log() is.
std::string logged(LogLevel level, std::string_view text) {
  FullPipe pipe(kPage);
  log(level, text);
  const std::string out = pipe.read_all();
  return out.substr(out.find_first_not_of('f'));
}

TEST(Log, ALineNamesHostAndProcess) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  const std::string pid = std::to_string(getpid());
  EXPECT_EQ(logged(LogLevel::kWarn, "it is late"),
            std::string("[ringdist ") + host.data() + ":" + pid + "] warn: it is late\n");
  set_log_json(true);
  const std::string line = logged(LogLevel::kError, "a \"b\"\nc");
  const std::string cut = logged(LogLevel::kError, std::string(2 * kPage, '\n'));
  set_log_json(false);
  EXPECT_LE(cut.size(), kPage);
  EXPECT_TRUE(cut.ends_with("\\u000a...\"}\n")) << cut;
  EXPECT_EQ(line.find(R"({"time":"20)"), 0u) << line;
  EXPECT_EQ(line.substr(line.find(R"(Z",)")),
            std::string(R"(Z","host":")") + host.data() + R"(","pid":)" + pid +
                R"(,"level":"error","text":"a \"b\"\u000ac"})" + "\n");
}

}  // namespace
}  // namespace ringdist
