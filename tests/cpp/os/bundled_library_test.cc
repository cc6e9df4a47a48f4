#include "os/bundled_library.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

constexpr const char* kOurs = "libringdist_ucx.so";  // built into the folder of the test programs

TEST(LibraryBeside, GivesTheSymbol) {
  auto first = load_bundled_symbol(kOurs, "ringdist_ucx_plugin");
  ASSERT_TRUE(first.ok()) << first.error().message();
  ASSERT_NE(first.value(), nullptr);
  EXPECT_EQ(load_bundled_symbol(kOurs, "ringdist_ucx_plugin").value(), first.value());
}

TEST(LibraryBeside, NamesWhatIsNotThere) {
  const auto library = load_bundled_symbol("libringdist_none.so", "anything");
  ASSERT_FALSE(library.ok());
  EXPECT_NE(library.error().message().find("libringdist_none.so"), std::string::npos);
  const auto symbol = load_bundled_symbol(kOurs, "ringdist_of_another_build");
  ASSERT_FALSE(symbol.ok());
  EXPECT_NE(symbol.error().message().find("rebuild"), std::string::npos);
}

}  // namespace
}  // namespace ringdist
