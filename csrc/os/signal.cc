#include "os/signal.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "os/per_process.h"

namespace ringdist {
namespace {

constexpr int kSlots = 64;

struct Watches {
  std::array<std::atomic<int>, kSlots> targets{};  // descriptor + 1, so that 0 means free
  std::mutex mutex;  // guards installation and removal; the handler never takes it
  int count = 0;
};

constinit PerProcess<Watches> g_watches;

// The handler calls only functions that are safe in signals, takes no lock and restores errno.
void handle(int number) {
  Watches* const watches = g_watches.find();
  if (watches == nullptr) {
    // A forked child without watches gets the default action, as without this library.
    signal(number, SIG_DFL);
    raise(number);
    return;
  }
  int saved = errno;
  uint64_t one = 1;
  for (auto& target : watches->targets) {
    int fd = target.load(std::memory_order_relaxed) - 1;
    if (fd < 0) continue;
    [[maybe_unused]] ssize_t written = write(fd, &one, sizeof one);
  }
  errno = saved;
}

// Installs the handler. Returns false if the program has one of its own, which stays.
bool install() {
  struct sigaction now{};
  if (sigaction(SIGUSR1, nullptr, &now) != 0) return false;
  if (now.sa_handler != SIG_DFL && now.sa_handler != handle)
    return false;  // if it is `handle`, the parent installed it
  struct sigaction ours{};
  ours.sa_handler = handle;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  return sigaction(SIGUSR1, &ours, nullptr) == 0;
}

void uninstall() {
  struct sigaction now{};
  if (sigaction(SIGUSR1, nullptr, &now) != 0 || now.sa_handler != handle) return;
  signal(SIGUSR1, SIG_DFL);
}

// Stores the descriptor in a free slot. Returns the slot, or -1 if there is none.
int take_slot(Watches& watches, int fd) {
  for (int i = 0; i < kSlots; ++i) {
    int free = 0;
    if (watches.targets[static_cast<size_t>(i)].compare_exchange_strong(free, fd + 1)) return i;
  }
  return -1;
}

}  // namespace

std::unique_ptr<SignalWatch> SignalWatch::on_sigusr1(const EventFd& target) {
  Watches& watches = g_watches.get();
  std::lock_guard lock(watches.mutex);
  if (watches.count == 0 && !install()) return std::unique_ptr<SignalWatch>(new SignalWatch(-1));
  int slot = take_slot(watches, target.get());
  if (slot >= 0) ++watches.count;
  return std::unique_ptr<SignalWatch>(new SignalWatch(slot));
}

SignalWatch::~SignalWatch() {
  if (slot_ < 0 || mark_.forked()) return;
  Watches& watches = g_watches.get();
  std::lock_guard lock(watches.mutex);
  watches.targets[static_cast<size_t>(slot_)].store(0);
  if (--watches.count == 0) uninstall();
}

}  // namespace ringdist
