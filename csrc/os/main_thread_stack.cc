#include "os/main_thread_stack.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "os/fd.h"
#include "os/per_process.h"

namespace ringdist {
namespace {

constexpr char kEnd = '\0';  // follows a stack in the pipe

struct State {
  std::mutex mutex;  // the handler never takes it
  int chosen = 0;    // signal; 0 before the first choice
  Fd read_end;
  Fd write_end;
  std::atomic<int> number{0};        // the signal, once it is enabled
  std::atomic<bool> is_sent{false};  // the signal was sent, and the handler has not ended
};

constinit PerProcess<State> g_state;
// The handler of faulthandler. A child after fork() inherits it.
std::atomic<void (*)(int)> g_faulthandler{nullptr};

// Writes the stack, and then its end. The handler of a child has no state until the child enables
// this, as the descriptors of its parent are closed there.
void handle(int number) {
  const int saved = errno;
  State* const state = g_state.find();
  const auto write_stack = g_faulthandler.load();
  if (state != nullptr && state->number == number && write_stack != nullptr) {
    write_stack(number);
    state->is_sent = false;
    [[maybe_unused]] const ssize_t written = write(state->write_end.get(), &kEnd, 1);
  }
  errno = saved;
}

// Returns the highest real-time signal without a handler, or the one that a parent has chosen; 0 if
// there is none.
int free_signal() {
  for (int number = SIGRTMAX; number >= SIGRTMIN; --number) {
    struct sigaction now{};
    if (sigaction(number, nullptr, &now) != 0) continue;
    if (now.sa_handler == SIG_DFL || now.sa_handler == handle) return number;
  }
  return 0;
}

// Reads what the pipe has, up to the end of a stack. Returns true once that was read.
bool read_part(int fd, std::string& out) {
  std::array<char, 4096> part{};
  for (;;) {
    const ssize_t count = read(fd, part.data(), part.size());
    if (count <= 0) return false;
    out.append(part.data(), static_cast<size_t>(count));
    const size_t end = out.find(kEnd);
    if (end == std::string::npos) continue;
    out.resize(end);
    return true;
  }
}

}  // namespace

Result<StackChannel> main_thread_stack_channel() {
  State& state = g_state.get();
  std::lock_guard lock(state.mutex);
  if (!state.write_end) {
    const fork_guard::Hold hold(2);
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
      return system_error("cannot open a pipe for Python stacks", errno);
    state.read_end = Fd::adopt(hold, ends[0]);
    state.write_end = Fd::adopt(hold, ends[1]);
  }
  if (state.chosen == 0) state.chosen = free_signal();
  if (state.chosen == 0)
    return Error(ErrorKind::kSystem, "no real-time signal is left for Python stacks");
  return StackChannel{state.chosen, state.write_end.get()};
}

Error enable_main_thread_stack() {
  State& state = g_state.get();
  std::lock_guard lock(state.mutex);
  struct sigaction now{};
  if (sigaction(state.chosen, nullptr, &now) != 0) return system_error("sigaction", errno);
  if (now.sa_handler != handle) {
    g_faulthandler = now.sa_handler;
    now.sa_handler = handle;
    if (sigaction(state.chosen, &now, nullptr) != 0) return system_error("sigaction", errno);
  }
  state.number = state.chosen;
  return {};
}

std::string main_thread_stack(Duration limit) {
  State* const state = g_state.find();
  if (state == nullptr || state->number == 0) return "";
  const std::unique_lock lock(state->mutex, std::try_to_lock);
  if (!lock) return "";
  const int fd = state->read_end.get();
  std::string out;
  while (read_part(fd, out)) out.clear();  // an answer that was late
  out.clear();
  // The program may have changed the action of the signal since, which could end the process.
  struct sigaction now{};
  if (sigaction(state->number, nullptr, &now) != 0 || now.sa_handler != handle) return "";
  // Signals would queue up in a thread that does not take them. The first thread of a process has
  // the process' id.
  if (!state->is_sent.exchange(true) &&
      syscall(SYS_tgkill, getpid(), getpid(), state->number.load()) != 0)
    state->is_sent = false;
  const TimePoint deadline = Clock::now() + limit;
  for (;;) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, POLLIN, 0};
    if (left <= 0) return "";
    (void)poll(&entry, 1, static_cast<int>(left));
    if (read_part(fd, out)) return out;
  }
}

}  // namespace ringdist
