// Each case of a test program has 120 s to live: a program runs many, and of one that hangs the
// name must be known.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace ringdist::test {
namespace {

constexpr unsigned kSeconds = 120;

// Only what a signal handler may call.
void give_up(int) {
  constexpr char kText[] = "\n[ TIMEOUT  ] the case that began last has not ended within 120 s\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  abort();
}

class CaseLimit : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { alarm(kSeconds); }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

// Before main(), which is GoogleTest's.
const bool installed = [] {
  signal(SIGALRM, give_up);
  testing::UnitTest::GetInstance()->listeners().Append(new CaseLimit);
  return true;
}();

}  // namespace
}  // namespace ringdist::test
