// Threads that no signal runs a handler on: signals are for the program's own.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace ringdist {

// `name`: of at most 15 characters, for `top -H` and debuggers. Throws, as std::thread does, where
// there is no thread to be had. Any thread.
template <typename Body>
std::thread thread_without_signals(const char* name, Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  } const blocked;  // a thread begins with its maker's mask
  std::thread out(std::forward<Body>(body));
  pthread_setname_np(out.native_handle(), name);
  return out;
}

}  // namespace ringdist
