#include "base/describe.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

TEST(Describe, NamesWhatIsKnown) {
  EXPECT_EQ(describe_process(12, "a"), "pid 12 on host a");
  EXPECT_EQ(describe_process(0, ""), "pid unknown on host unknown");
  EXPECT_EQ(describe_rank(3, describe_process(12, "a")), "rank 3 (pid 12 on host a)");
  EXPECT_EQ(describe_rank(3, ""), "rank 3");
}

TEST(Describe, TextsOfOthersCannotDriveATerminal) {
  EXPECT_EQ(printable("na\u00efve \u20ac \U0001f600", 100), "na\u00efve \u20ac \U0001f600");
  EXPECT_EQ(printable("\x1b[2J\na\t\x7f", 100), "\\x1b[2J\n    a\\x09\\x7f");
  EXPECT_EQ(printable("\xc2\x9b", 100), "\\xc2\\x9b") << "a control character of 8 bits";
  for (const std::string bad :
       {"\xff", "\xc3", "\xe2\x82", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    EXPECT_EQ(printable(bad, 100).size(), 4 * bad.size()) << "no UTF-8";
  EXPECT_EQ(printable(std::string(1000, 'a'), 10), "aaaaaaaaaa");
}

}  // namespace
}  // namespace ringdist
