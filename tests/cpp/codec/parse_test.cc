// Parsing of codec specs and codec pairs, and the error message of each mistake.
#include <gtest/gtest.h>

#include "codec/codec.h"
#include "codec/codec_map.h"
#include "codec/rotated.h"

namespace ringdist {
namespace {

std::string name_of(std::string_view spec) {
  const Result<CodecPtr> codec = parse_codec(spec);
  return codec.ok() ? std::string(codec.value()->name()) : codec.error().message();
}

std::string pair_of(std::string_view spec, int size = 4) {
  const Result<CodecPair> pair = parse_codec_pair(spec, size);
  return pair.ok() ? pair.value().name() : pair.error().message();
}

TEST(ParseCodec, NamesAreCanonical) {
  for (const auto& [spec, name] : {std::pair("none", "none"),
                                   {"topk:10", "topk:10"},
                                   {"topk:0.01", "topk:10"},
                                   {"topk:0.0001", "topk:1"},
                                   {"topk:1.0", "topk:1024"},
                                   {"randomk:0.5", "randomk:512"},
                                   {"onebit+h", "onebit+h"},
                                   {"topk:0.01+h", "topk:10+h"},
                                   {"int4", "int4"},
                                   {"bf16:stochastic", "bf16:stochastic"},
                                   {"lossless", "lossless"}})
    EXPECT_EQ(name_of(spec), name);
}

TEST(ParseCodec, ParametersAreOnTheWire) {
  EXPECT_EQ(parse_codec("topk:10").value()->wire_parameters(), 10);
  EXPECT_EQ(parse_codec("topk:10+h").value()->wire_parameters(), 10 | 1 << 15);
  EXPECT_EQ(parse_codec("randomk:1024").value()->wire_parameters(), 1024);
  EXPECT_EQ(parse_codec("onebit").value()->wire_parameters(), 0);
}

TEST(ParseCodec, WireIdsAreUnique) {
  std::vector<bool> seen(256);
  for (const CodecRow& row : codecs()) {
    EXPECT_FALSE(seen[row.wire_id]) << row.name;
    seen[row.wire_id] = true;
    for (std::string_view example : row.examples) {
      ASSERT_TRUE(parse_codec(example).ok()) << example;
      EXPECT_EQ(parse_codec(example).value()->wire_id(), row.wire_id) << example;
    }
  }
}

TEST(ParseCodec, CodecsThatKeepValues) {
  const std::string names =
      ", " + codec_names_where([](const Codec& codec) { return codec.keeps_values(); }) + ",";
  for (const char* name : {"none", "fp16", "bf16", "fp8", "int8", "lossless"})
    EXPECT_NE(names.find(std::string(", ") + name + ","), std::string::npos) << name;
  for (const char* name : {"int4", "int2", "onebit", "topk", "randomk"})
    EXPECT_EQ(names.find(std::string(", ") + name + ","), std::string::npos) << name;
  EXPECT_TRUE(parse_codec("int8+h").value()->keeps_values());
  EXPECT_FALSE(parse_codec("topk:1024").value()->keeps_values());  // loses elements
}

TEST(ParseCodec, AnUnknownNameListsWhatThereIs) {
  const Result<CodecPtr> codec = parse_codec("int5:2");
  ASSERT_FALSE(codec.ok());
  EXPECT_EQ(codec.error().kind(), ErrorKind::kInvalidArgument);
  std::string names;
  for (const CodecRow& row : codecs()) names += (names.empty() ? "" : ", ") + std::string(row.name);
  EXPECT_EQ(codec.error().message(),
            "unknown codec 'int5'; have: " + names +
                " (add +h for a rotation, A>B for a pair); for DDP also powersgd:RANK and auto");
  EXPECT_NE(name_of("auto").find("'auto' is no codec of an operation"), std::string::npos);
  EXPECT_EQ(name_of("").find("unknown codec ''"), 0u);
  EXPECT_EQ(name_of("ONEBIT").find("unknown codec 'ONEBIT'"), 0u);
}

TEST(ParseCodec, ParametersThatMakeNoSense) {
  for (const char* name : {"none", "onebit", "lossless", "int4", "int2", "fp16"})
    EXPECT_EQ(name_of(std::string(name) + ":3"),
              "codec '" + std::string(name) + "' takes no parameter, got '3'");
  EXPECT_EQ(name_of("fp8:e3m4"), "codec 'fp8': parameter 'e3m4' is not known; have: e4m3, e5m2");
  for (const std::string name : {"topk", "randomk"})
    for (const std::string bad : {"", "0", "1025", "-1", "ten", "10x", " 10", "0.0", "1.5", "-0.1",
                                  "0.1.2", ".", "nan", "99999999999"})
      EXPECT_EQ(name_of(name + ":" + bad), "codec '" + name + "': parameter '" + bad +
                                               "' is not known; have: k of 1024, from 1 to 1024 (" +
                                               name + ":10), or a share above 0.0, to 1.0 (" +
                                               name + ":0.01)");
}

TEST(ParseCodec, RotationsOfWhatMayNotBeRotated) {
  EXPECT_EQ(name_of("none+h"),
            "codec 'none' is exact, which '+h' would end; '+h' goes with lossy codecs");
  EXPECT_EQ(name_of("lossless+h"),
            "codec 'lossless' is exact, which '+h' would end; '+h' goes with lossy codecs");
  const Result<CodecPtr> twice = rotate(parse_codec("onebit+h").value());
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message(), "codec 'onebit+h' has '+h' already; once is enough");
  EXPECT_FALSE(parse_codec("onebit+h+h").ok());
}

TEST(ParseCodecPair, Defaults) {
  EXPECT_EQ(pair_of(""), "none");
  EXPECT_TRUE(parse_codec_pair("", 4).value().plain());
  EXPECT_FALSE(parse_codec_pair("none>int8", 4).value().plain());
  EXPECT_EQ(pair_of("int4"), "int4");
  EXPECT_EQ(pair_of("onebit"), "onebit+h");
  EXPECT_EQ(pair_of("onebit>onebit"), "onebit");
  EXPECT_EQ(pair_of("onebit+h"), "onebit+h");
  EXPECT_EQ(pair_of("int4+h"), "int4+h");
  EXPECT_EQ(pair_of("topk:10", 1), "topk:10");
  EXPECT_EQ(pair_of("topk:10", 2), "topk:10>topk:20");
  EXPECT_EQ(pair_of("topk:10", 4), "topk:10>topk:40");
  EXPECT_EQ(pair_of("topk:0.01", 64), "topk:10>topk:40");
  EXPECT_EQ(pair_of("topk:10+h", 3), "topk:10+h>topk:30+h");
  EXPECT_EQ(pair_of("topk:512", 4), "topk:512>topk:1024");
  EXPECT_EQ(pair_of("randomk:10"), "randomk:10");
}

TEST(ParseCodecPair, BothSidesAreNamed) {
  EXPECT_EQ(pair_of("onebit>int2"), "onebit>int2");
  EXPECT_EQ(pair_of("topk:0.01>int8+h"), "topk:10>int8+h");
  EXPECT_EQ(pair_of("int4>wrong").find("unknown codec 'wrong'"), 0u);
  EXPECT_EQ(pair_of("wrong>int4").find("unknown codec 'wrong'"), 0u);
  EXPECT_EQ(pair_of("int4>").find("unknown codec ''"), 0u);
  EXPECT_EQ(pair_of("int4>int8>int8").find("unknown codec 'int8>int8'"), 0u);
}

CodecMap map_of(std::initializer_list<std::pair<const char*, int64_t>> parts) {
  CodecMap out;
  for (const auto& [spec, count] : parts)
    out.parts.push_back({out.count(), count, parse_codec_pair(spec, 4).value(), nullptr});
  return out;
}

TEST(CodecMap, HashTellsWhatMustBeAlike) {
  const CodecMap map = map_of({{"int4", 100}, {"none", 24}});
  EXPECT_EQ(map.count(), 124);
  EXPECT_EQ(map.hash(), map_of({{"int4", 100}, {"none", 24}}).hash());
  std::vector<uint64_t> others{map_of({{"int4", 101}, {"none", 24}}).hash(),
                               map_of({{"int4", 24}, {"none", 100}}).hash(),
                               map_of({{"none", 24}, {"int4", 100}}).hash(),
                               map_of({{"int4>int8", 100}, {"none", 24}}).hash(),
                               map_of({{"int4", 100}, {"int8", 24}}).hash(),
                               map_of({{"int4", 100}}).hash()};
  CodecMap with_feedback = map_of({{"int4", 100}, {"none", 24}});
  float residual = 0;
  with_feedback.parts[0].residual = &residual;
  others.push_back(with_feedback.hash());
  for (size_t i = 0; i < others.size(); ++i) EXPECT_NE(others[i], map.hash()) << i;
}

TEST(CodecMap, DescribesItself) {
  EXPECT_EQ(map_of({{"int4", 100}}).describe(), "int4, 1 part");
  EXPECT_EQ(map_of({{"int4", 100}, {"none", 24}, {"int4", 3}}).describe(), "int4,none, 3 parts");
}

}  // namespace
}  // namespace ringdist
