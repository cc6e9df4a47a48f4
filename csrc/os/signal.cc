#include "os/signal.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

namespace ringdist {
namespace {

constexpr int kSlots = 64;

std::array<std::atomic<int>, kSlots> g_targets;  // descriptor + 1, so that zero means free
std::atomic<pid_t> g_owner{0};
std::mutex g_mutex;  // installing and removing; never taken by the handler
int g_watches = 0;

void handle(int number) {
  if (getpid() != g_owner.load(std::memory_order_relaxed)) {
    // A forked child: our descriptors are not ours here. It shall see what it would without us.
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  int saved = errno;
  uint64_t one = 1;
  for (auto& target : g_targets) {
    int fd = target.load(std::memory_order_relaxed) - 1;
    if (fd < 0) continue;
    [[maybe_unused]] ssize_t written = write(fd, &one, sizeof one);
  }
  errno = saved;
}

bool install() {
  struct sigaction now{};
  if (sigaction(SIGUSR1, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return false;
  struct sigaction ours{};
  ours.sa_handler = handle;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  g_owner.store(getpid(), std::memory_order_relaxed);
  return sigaction(SIGUSR1, &ours, nullptr) == 0;
}

void uninstall() {
  struct sigaction now{};
  if (sigaction(SIGUSR1, nullptr, &now) != 0 || now.sa_handler != handle) return;
  signal(SIGUSR1, SIG_DFL);
}

int take_slot(int fd) {
  for (int i = 0; i < kSlots; ++i) {
    int free = 0;
    if (g_targets[static_cast<size_t>(i)].compare_exchange_strong(free, fd + 1)) return i;
  }
  return -1;
}

}  // namespace

std::unique_ptr<SignalWatch> SignalWatch::on_sigusr1(const EventFd& target) {
  std::lock_guard lock(g_mutex);
  if (g_watches == 0 && !install()) return std::unique_ptr<SignalWatch>(new SignalWatch(-1));
  int slot = take_slot(target.get());
  if (slot >= 0) ++g_watches;
  return std::unique_ptr<SignalWatch>(new SignalWatch(slot));
}

SignalWatch::~SignalWatch() {
  if (slot_ < 0 || mark_.forked()) return;
  std::lock_guard lock(g_mutex);
  g_targets[static_cast<size_t>(slot_)].store(0);
  if (--g_watches == 0) uninstall();
}

}  // namespace ringdist
