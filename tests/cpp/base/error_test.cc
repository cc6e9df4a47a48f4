#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

namespace ringdist {
namespace {

TEST(Error, DefaultIsSuccess) {
  EXPECT_FALSE(Error());
  EXPECT_TRUE(Error(ErrorKind::kTimeout, "late"));
}

TEST(Error, SaysWhatAndWhere) {
  const Error error(ErrorKind::kMismatch, "two counts");
  EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
  EXPECT_EQ(error.message(), "two counts");
  EXPECT_TRUE(error.ranks().empty());
  EXPECT_EQ(error.what().rfind("two counts (", 0), 0u);
  EXPECT_NE(error.what().find("error_test.cc:"), std::string::npos);
}

TEST(Error, ChangesMakeNewErrors) {
  const Error error(ErrorKind::kPeerLost, "gone");
  const Error changed = error.blame(3).prefixed("all_reduce: ").suffixed("!");
  EXPECT_EQ(changed.message(), "all_reduce: gone!");
  EXPECT_EQ(changed.ranks(), std::vector<int>{3});
  EXPECT_EQ(changed.kind(), ErrorKind::kPeerLost);
  EXPECT_EQ(error.message(), "gone");
  EXPECT_TRUE(error.ranks().empty());
  EXPECT_EQ(error.blame({4, 1}).suffixed("!").ranks(), (std::vector<int>{1, 4}));
  // The source location does not change.
  EXPECT_EQ(changed.what().substr(changed.what().find('(')),
            error.what().substr(error.what().find('(')));
}

TEST(Error, OfTheSystemNamesErrno) {
  const Error error = system_error("open(/x)", ENOENT);
  EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  EXPECT_EQ(error.message(), "open(/x): No such file or directory");
  EXPECT_NE(system_error("socket", EMFILE).message().find(": raise 'ulimit -n'"),
            std::string::npos);
}

TEST(Error, EveryKindHasAName) {
  for (int kind = 0; kind <= static_cast<int>(ErrorKind::kProtocol); ++kind)
    EXPECT_NE(error_kind_name(static_cast<ErrorKind>(kind)), "unknown");
  EXPECT_EQ(error_kind_name(static_cast<ErrorKind>(200)), "unknown");
}

Result<std::unique_ptr<int>> half_of(int x) {
  if (x % 2 != 0) return Error(ErrorKind::kInvalidArgument, std::to_string(x) + " is odd");
  return std::make_unique<int>(x / 2);
}

TEST(Result, IsAValueOrAnError) {
  auto good = half_of(8);
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good.value(), 4);
  EXPECT_FALSE(good.error());
  auto bad = half_of(7);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message(), "7 is odd");
}

}  // namespace
}  // namespace ringdist
