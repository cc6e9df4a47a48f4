// Stacks of the main thread, with a handler of this test in the place of faulthandler's.
#include "os/main_thread_stack.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace ringdist {
namespace {

int descriptor = -1;
volatile sig_atomic_t g_written = 0;  // calls of write_text()
std::string text = "one line\n";

void write_text(int) {
  g_written = g_written + 1;
  [[maybe_unused]] const ssize_t written = write(descriptor, text.data(), text.size());
}

// Does what faulthandler.register() and the Python module _native do.
void enable() {
  const auto channel = main_thread_stack_channel();
  ASSERT_TRUE(channel.ok()) << channel.error().what();
  descriptor = channel.value().descriptor;
  struct sigaction now{};
  ASSERT_EQ(sigaction(channel.value().signal_number, nullptr, &now), 0);
  if (now.sa_handler == SIG_DFL) {
    now.sa_handler = write_text;
    now.sa_flags = SA_RESTART;
    ASSERT_EQ(sigaction(channel.value().signal_number, &now, nullptr), 0);
  }
  const Error error = enable_main_thread_stack();
  ASSERT_FALSE(error) << error.what();
}

// Reads the stack from another thread, as the main thread has to answer.
std::string read_stack() {
  std::string out;
  std::thread([&] { out = main_thread_stack(std::chrono::seconds(10)); }).join();
  return out;
}

TEST(MainThreadStack, IsReadFromAnotherThread) {
  EXPECT_EQ(read_stack(), "") << "it is not enabled";
  enable();
  EXPECT_EQ(read_stack(), "one line\n");
  text = std::string(20000, 'x');  // several reads
  EXPECT_EQ(read_stack(), text);
  text = "one line\n";
  enable();
  EXPECT_EQ(read_stack(), "one line\n");
}

TEST(MainThreadStack, AMainThreadThatDoesNotAnswerHasNone) {
  enable();
  const int number = main_thread_stack_channel().value().signal_number;
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, number);
  ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, nullptr), 0);
  std::string out = "?";
  for (int i = 0; i < 3; ++i)  // one signal is sent
    std::thread([&] { out = main_thread_stack(std::chrono::milliseconds(20)); }).join();
  const int written = g_written;
  ASSERT_EQ(pthread_sigmask(SIG_UNBLOCK, &blocked, nullptr), 0);  // the answer comes now
  EXPECT_EQ(out, "");
  EXPECT_EQ(g_written, written + 1);
  text = "later\n";
  EXPECT_EQ(read_stack(), "later\n");
}

// The default action of the signal would end the process.
TEST(MainThreadStack, ASignalWithAnotherActionIsNotSent) {
  enable();
  const int number = main_thread_stack_channel().value().signal_number;
  struct sigaction ours{};
  ASSERT_EQ(sigaction(number, nullptr, &ours), 0);
  ASSERT_NE(signal(number, SIG_DFL), SIG_ERR);
  EXPECT_EQ(read_stack(), "");
  ASSERT_EQ(sigaction(number, &ours, nullptr), 0);
  text = "again\n";
  EXPECT_EQ(read_stack(), "again\n");
}

TEST(MainThreadStack, AChildHasItsOwn) {
  enable();
  const pid_t child = fork();
  if (child == 0) {
    raise(main_thread_stack_channel().value().signal_number);  // nothing, before it is enabled
    if (!main_thread_stack(std::chrono::seconds(1)).empty()) _exit(1);
    enable();
    text = "of the child\n";
    _exit(read_stack() == text ? 0 : 2);
  }
  text = "of the parent\n";
  EXPECT_EQ(read_stack(), text);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace ringdist
