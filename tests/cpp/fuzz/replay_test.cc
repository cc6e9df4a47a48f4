// Repeats the seeds of all fuzz targets, and the inputs that `make fuzz` has found. Under
// AddressSanitizer this detects accesses outside of buffers.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "fuzz/target.h"
#include "support/source_folder.h"

namespace ringdist::test {
namespace {

class FuzzReplay : public testing::TestWithParam<const FuzzTarget*> {};

TEST_P(FuzzReplay, SeedsAreWorthKeeping) {
  for (const auto& seed : GetParam()->seeds()) EXPECT_TRUE(GetParam()->run(seed));
}

TEST_P(FuzzReplay, EveryInputOfTheCorpusPasses) {
  size_t seen = 0;
  const auto corpus = source_folder() / "tests/fuzz/corpus" / GetParam()->name;
  for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(GetParam()->run(std::as_bytes(std::span(input))));
    ++seen;
  }
  EXPECT_GT(seen, 0u);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplay, testing::ValuesIn(kFuzzTargets),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace ringdist::test
