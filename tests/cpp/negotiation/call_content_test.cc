#include "negotiation/call_content.h"

#include <gtest/gtest.h>

#include "base/serialize.h"

namespace ringdist {
namespace {

CallContent of_two() {
  CallContent out;
  out.reduce_op = ReduceOp::kAvg;
  out.tensors = {{DType::kFloat32, {2, 3}}, {DType::kFloat32, {}}};
  out.prescale = 0.5;
  out.variant = "int4";
  return out;
}

TEST(CallContent, IsReadAsItWasWritten) {
  const CallDescription described = of_two().describe();
  const auto parsed = CallContent::parse(described.content);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed.value().tensors[0].count(), 6);
  EXPECT_EQ(parsed.value().describe().content, described.content);
  EXPECT_EQ(described.bytes, 28);
  EXPECT_FALSE(described.needs_all);
}

TEST(CallContent, SaysAllOfItInWords) {
  EXPECT_EQ(of_two().describe().words,
            "all_reduce (float32[2, 3] float32[], AVG, prescale 0.5, int4, on cpu)");
  CallContent broadcast;
  broadcast.kind = Collective::kBroadcast;
  broadcast.root = 3;
  for (int64_t i = 1; i <= 4; ++i)
    broadcast.tensors.push_back({DType::kInt8, {i, CallContent::kAny}});
  EXPECT_EQ(broadcast.describe().words,
            "broadcast (int8[1, *] int8[2, *] int8[3, *] and 1 more, root 3, on cpu)");
  EXPECT_TRUE(broadcast.describe().needs_all);
  EXPECT_EQ(broadcast.describe().batch, 0u);
}

// Each variant differs in one part, and every difference must be detected.
TEST(CallContent, DiffersInAnyOfItsParts) {
  std::vector<CallContent> all(9, of_two());
  all[1].kind = Collective::kBroadcast;
  all[2].tensors[1].dtype = DType::kFloat64;
  all[3].reduce_op = ReduceOp::kSum;
  all[4].tensors[0].shape = {6};
  all[5].prescale = 2;
  all[6].postscale = 2;
  all[7].variant = "";
  all[8].where = "cuda";
  for (size_t a = 0; a < all.size(); ++a)
    for (size_t b = 0; b < all.size(); ++b)
      EXPECT_EQ(all[a].describe() == all[b].describe(), a == b) << a << " " << b;
}

TEST(CallContent, OfAllreducesThatMayTravelTogetherHasOneNumber) {
  CallContent other = of_two();
  other.tensors = {{DType::kFloat32, {100}}};
  other.postscale = 3;
  EXPECT_EQ(of_two().describe().batch, other.describe().batch);
  other.reduce_op = ReduceOp::kSum;
  EXPECT_NE(of_two().describe().batch, other.describe().batch);
  other = of_two();
  other.tensors[1].dtype = DType::kFloat64;
  EXPECT_EQ(other.describe().batch, 0u) << "of several dtypes";
}

TEST(CallContent, ThatMakesNoSenseIsAnError) {
  const std::string good = of_two().describe().content;
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(CallContent::parse(good.substr(0, length)).ok()) << length;
  EXPECT_FALSE(CallContent::parse(good + "x").ok());
  std::string bad = good;
  bad[0] = 100;
  EXPECT_FALSE(CallContent::parse(bad).ok());
}

// A joined rank allocates memory of the sizes that it reads.
TEST(CallContent, OfSizesThatDoNotFitIsAnError) {
  constexpr int64_t kHalf = int64_t{1} << 61;  // bytes: as float32, four of them do not fit
  using Tensors = std::vector<CallContent::Tensor>;
  for (const Tensors& tensors :
       {Tensors{{DType::kFloat32, {-2, -3}}},
        Tensors{{DType::kInt8, {1 << 16, 1 << 16, 1 << 16, 1 << 16}}},
        Tensors{{DType::kFloat32, {kHalf}}}, Tensors(4, {DType::kInt8, {kHalf}})}) {
    CallContent call;
    call.tensors = {{DType::kInt8, {}}};
    std::string content = call.describe().content;
    content.resize(content.size() - 9);  // the number of tensors, and a tensor without lengths
    Writer out;
    out.put(static_cast<uint32_t>(tensors.size()));
    for (const auto& [dtype, shape] : tensors) {
      out.put(dtype).put(static_cast<uint32_t>(shape.size()));
      for (const int64_t length : shape) out.put(length);
    }
    for (const std::byte byte : out.take()) content += static_cast<char>(byte);
    EXPECT_FALSE(CallContent::parse(content).ok());
  }
}

TEST(CallContent, TheFirstTensorThatIsNotAlikeIsNamed) {
  CallContent one;
  one.tensors.assign(7, {DType::kFloat32, {2}});
  CallContent other = one;
  EXPECT_EQ(first_tensor_difference(one.describe().content, other.describe().content), "");
  other.tensors[5].shape = {3};
  EXPECT_EQ(one.to_string(), other.to_string());
  EXPECT_EQ(first_tensor_difference(one.describe().content, other.describe().content),
            "tensor 5: float32[2], float32[3]");
  EXPECT_EQ(first_tensor_difference("torn", other.describe().content), "");
}

}  // namespace
}  // namespace ringdist
