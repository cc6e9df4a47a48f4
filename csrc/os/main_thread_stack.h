// Reads the Python stack of this process' main thread, without Python's global lock. A signal makes
// the main thread write its stack into a pipe, in the handler of Python's faulthandler module,
// which takes no lock. So it works while C code holds the lock, or while the main thread waits in
// the kernel. It does not work for a thread that is stopped or in uninterruptible sleep.
//
// Any thread.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/error.h"

namespace ringdist {

// Arguments of faulthandler.register(), a real-time signal that nobody uses and a descriptor.
struct StackChannel {
  int signal_number;
  int descriptor;
};

// Returns the channel of this process. The first call makes it; a child after fork() gets one of
// its own. Error: kSystem, if no descriptor or no signal is left.
Result<StackChannel> main_thread_stack_channel();

// Enables main_thread_stack() in this process, after faulthandler.register() for its channel.
Error enable_main_thread_stack();

// Returns the stack as faulthandler writes it, newest call first. Returns "" if it is not enabled
// in this process, if another thread reads it, or if the main thread does not answer within
// `limit`.
std::string main_thread_stack(Duration limit);

}  // namespace ringdist
