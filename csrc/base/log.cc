#include "base/log.h"

#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <string>

#include "base/json.h"

namespace ringdist {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"error", "warn", "info", "debug"};

std::atomic<LogLevel> g_level{LogLevel::kWarn};
std::atomic<bool> g_json{false};

std::string host() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string time_text() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts{};
  gmtime_r(&now.tv_sec, &parts);
  std::array<char, 32> out{};
  std::strftime(out.data(), out.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  return out.data() + ("." + std::to_string(1000 + now.tv_nsec / 1'000'000).substr(1)) + "Z";
}

// A text is cut so that a pipe takes the whole line at once.
std::string json_line(LogLevel level, std::string_view text) {
  for (size_t size = text.size();; size = size * 3 / 4) {
    const std::string cut(text.substr(0, size));
    std::string line = JsonObject()
                           .add("time", time_text())
                           .add("host", host())
                           .add("pid", getpid())
                           .add("level", log_level_name(level))
                           .add("text", cut + (size < text.size() ? "..." : ""))
                           .text();
    if (line.size() < PIPE_BUF || size == 0) return line;
  }
}

}  // namespace

std::string_view log_level_name(LogLevel level) { return kNames[static_cast<size_t>(level)]; }

std::optional<LogLevel> parse_log_level(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<LogLevel>(i);
  return std::nullopt;
}

void set_log_level(LogLevel level) { g_level.store(level, std::memory_order_relaxed); }

void set_log_json(bool is_json) { g_json.store(is_json, std::memory_order_relaxed); }

std::string log_prefix() { return "[ringdist " + host() + ":" + std::to_string(getpid()) + "]"; }

void log(LogLevel level, std::string_view text) {
  if (level > g_level.load(std::memory_order_relaxed)) return;
  std::string line;
  if (g_json.load(std::memory_order_relaxed))
    line = json_line(level, text);
  else
    line.append(log_prefix()).append(" ").append(log_level_name(level)).append(": ").append(text);
  line.push_back('\n');
  // A reader of stderr that does not read must not block a lane, so the rest of its line is
  // dropped. A pipe that is ready has room for PIPE_BUF bytes. If the write fails, there is no
  // other place for the line.
  struct stat about{};
  const bool is_pipe = fstat(STDERR_FILENO, &about) == 0 && S_ISFIFO(about.st_mode);
  const size_t most = is_pipe ? size_t{PIPE_BUF} : line.size();
  for (std::string_view rest = line; !rest.empty();) {
    pollfd out{STDERR_FILENO, POLLOUT, 0};
    if (poll(&out, 1, 0) == 0) return;
    const ssize_t written = write(STDERR_FILENO, rest.data(), std::min(rest.size(), most));
    if (written <= 0) return;
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace ringdist
