// Gives each test case 120 s. A test program runs many cases, so the message of a hang must name
// the case.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

namespace ringdist::test {
namespace {

constexpr unsigned kSeconds = 120;

// Runs in a signal handler and calls async-signal-safe functions only.
void give_up(int) {
  constexpr char kText[] = "\n[ TIMEOUT  ] the case that began last has not ended within 120 s\n";
  (void)!write(STDERR_FILENO, kText, sizeof kText - 1);
  abort();
}

class CaseLimit : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { alarm(kSeconds); }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }
};

// Runs before main(), which belongs to GoogleTest.
const bool installed = [] {
  signal(SIGALRM, give_up);
  testing::UnitTest::GetInstance()->listeners().Append(new CaseLimit);
  return true;
}();

}  // namespace
}  // namespace ringdist::test
