#include "os/thread_usage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <optional>

#include "os/fd.h"

namespace ringdist {
namespace {

constexpr Duration kInterval = Milliseconds(5);

// Counters since a thread or process started.
struct Counters {
  uint64_t cpu = 0;  // nanoseconds, like run_delay
  uint64_t run_delay = 0;
  uint64_t major_faults = 0;
};

// Reads the first two numbers of a schedstat file; see proc_pid_schedstat(5) and
// sched-stats.rst in Linux' documentation.
std::optional<Counters> read_schedstat(const char* path) {
  const Fd file = Fd::open([&] { return open(path, O_RDONLY | O_CLOEXEC); });
  std::array<char, 96> text{};
  if (!file || read(file.get(), text.data(), text.size() - 1) <= 0) return std::nullopt;
  char* end = text.data();
  Counters out;
  out.cpu = std::strtoull(end, &end, 10);
  if (*end != ' ') return std::nullopt;
  out.run_delay = std::strtoull(end, &end, 10);
  return out;
}

std::optional<Counters> read_counters() {
  auto out = read_schedstat("/proc/thread-self/schedstat");
  if (!out) return out;
  if (syscall(SYS_gettid) != getpid())
    if (const auto main_thread = read_schedstat("/proc/self/schedstat")) {
      out->cpu += main_thread->cpu;
      out->run_delay += main_thread->run_delay;
    }
  struct rusage process{};
  if (getrusage(RUSAGE_SELF, &process) == 0)
    out->major_faults = static_cast<uint64_t>(process.ru_majflt);
  return out;
}

// The counters of a forked child begin again, which gives 0.
uint32_t difference(uint64_t now, uint64_t before, uint64_t unit) {
  const uint64_t whole = now > before ? (now - before) / unit : 0;
  return static_cast<uint32_t>(std::min<uint64_t>(whole, std::numeric_limits<uint32_t>::max()));
}

struct Measurement {
  TimePoint at;
  Counters counters;
};
thread_local Measurement g_last;

}  // namespace

ThreadUsage measure_thread_usage(TimePoint now) {
  if (now - g_last.at < kInterval) return {};
  const auto counters = read_counters();
  if (!counters) return {};
  const Measurement before = g_last;
  g_last = {now, *counters};
  if (before.at == TimePoint()) return {};
  constexpr uint64_t kMicrosecond = 1000;
  ThreadUsage out;
  out.elapsed = difference(static_cast<uint64_t>((now - before.at).count()), 0, kMicrosecond);
  out.cpu = difference(counters->cpu, before.counters.cpu, kMicrosecond);
  out.run_delay = difference(counters->run_delay, before.counters.run_delay, kMicrosecond);
  out.major_faults = difference(counters->major_faults, before.counters.major_faults, 1);
  return out;
}

Duration run_delay_of_this_thread() {
  const auto counters = read_schedstat("/proc/thread-self/schedstat");
  return Duration(counters ? static_cast<int64_t>(counters->run_delay) : 0);
}

}  // namespace ringdist
