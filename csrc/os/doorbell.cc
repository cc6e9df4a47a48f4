#include "os/doorbell.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ringdist {
namespace {

// One page. The kernel limits the pages that all pipes of a user have (pipe(7)), and a new pipe
// has 16.
constexpr int kPipeBytes = 4096;

// Blocks SIGPIPE in this thread during its lifetime, so that a write to a pipe without a reader is
// only an error.
class ScopedSigpipeBlock {
 public:
  ScopedSigpipeBlock() {
    sigemptyset(&only_);
    sigaddset(&only_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &only_, &before_);
    if (sigismember(&before_, SIGPIPE) == 0) return;
    sigset_t pending;
    theirs_ = sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
  }
  ~ScopedSigpipeBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ScopedSigpipeBlock(const ScopedSigpipeBlock&) = delete;

  // Removes the SIGPIPE that the write raised in this thread, unless another one was pending
  // before.
  void take_back() const {
    const timespec at_once{};
    while (!theirs_ && sigtimedwait(&only_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
  }

 private:
  sigset_t only_;
  sigset_t before_;
  bool theirs_ = false;  // a SIGPIPE was pending before
};

void press(const Fd& write_end) {
  const ScopedSigpipeBlock held;
  const char one = 1;
  // A full pipe is not an error: its reader will wake anyway.
  if (write(write_end.get(), &one, 1) < 0 && errno == EPIPE) held.take_back();
}

}  // namespace

Result<Doorbell> Doorbell::create() {
  std::array<int, 2> ends{-1, -1};
  Fd heard;
  Fd write_end;
  {
    const fork_guard::Hold hold(2);
    if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) return system_error("pipe2", errno);
    heard = Fd::adopt(hold, ends[0]);
    write_end = Fd::adopt(hold, ends[1]);
  }
  // If this fails, the pipe keeps its size and works as well.
  (void)fcntl(write_end.get(), F_SETPIPE_SZ, kPipeBytes);
  return Doorbell(std::move(heard), std::move(write_end));
}

// A read that returns less than it could has emptied the pipe.
void Doorbell::drain() const {
  std::array<char, kPipeBytes> rings;
  while (read(heard_.get(), rings.data(), rings.size()) == static_cast<ssize_t>(rings.size())) {
  }
}

void Doorbell::ring() const { press(write_end_); }

void RemoteDoorbell::ring() const { press(write_end_); }

}  // namespace ringdist
