// Replays tests/fuzz/corpus, which `make fuzz` grows. Under AddressSanitizer this sees what a codec
// reads outside its input.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "codec/codec.h"
#include "support/decode_any.h"
#include "support/source_folder.h"

namespace ringdist {
namespace {

std::filesystem::path corpus() { return source_folder() / "tests/fuzz/corpus"; }

TEST(FuzzCorpus, EveryInputEndsInValuesOrAnError) {
  std::set<uint8_t> codecs_seen;
  for (const auto& entry : std::filesystem::directory_iterator(corpus())) {
    SCOPED_TRACE(entry.path().filename().string());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::vector<uint8_t> input{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(test::decode_any(input));
    if (!input.empty()) codecs_seen.insert(input[0]);
  }
  for (const CodecRow& row : codecs())
    EXPECT_EQ(codecs_seen.count(row.wire_id), 1u) << "no input for " << row.name;
}

}  // namespace
}  // namespace ringdist
