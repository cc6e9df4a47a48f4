#include <gtest/gtest.h>

#include <string>

#include "codec/codec.h"
#include "codec/codec_map.h"
#include "cuda/stream/path_rules.h"

namespace ringdist::gpu {
namespace {

const NcclInfo kFound{22900, "", false};

// Returns a query for four ranks on one host, each with its own device.
DevicePathQuery question(Collective kind = Collective::kAllreduce, int64_t count = 1 << 20) {
  DevicePathQuery out;
  out.request.kind = kind;
  out.request.count = count;
  out.request.reduce_op = ReduceOp::kSum;
  out.hosts = {{0, 1, 2, 3}};
  out.devices = 4;
  return out;
}

DevicePathQuery compressed(const std::string& codec, int64_t count = 1 << 20) {
  DevicePathQuery out = question(Collective::kAllreduce, count);
  const CodecPtr made = parse_codec(codec).value();
  CodecMap map;
  map.parts.push_back({0, out.request.count, {made, made}});
  out.request.codec_map = std::make_shared<const CodecMap>(std::move(map));
  return out;
}

DevicePathChoice route(const DevicePathQuery& asked, const NcclInfo& nccl = kFound) {
  const auto out = explain_path(asked, nccl);
  EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message());
  return out.ok() ? out.value() : DevicePathChoice();
}

void expect_has(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << text;
}

TEST(Route, IsNcclsOwnWhereThatIsAlike) {
  const DevicePathChoice out = route(question());
  EXPECT_TRUE(out.by_nccl);
  EXPECT_FALSE(out.host_op);
  EXPECT_EQ(out.why, "each rank has NCCL and a device of its own");
  EXPECT_EQ(out.how, "its own all_reduce");
}

TEST(Route, IsAScheduleOverNcclForTheRest) {
  DevicePathQuery least = question();
  least.request.reduce_op = ReduceOp::kMin;
  least.algorithm = "ring";
  expect_has(route(least).how, "algorithm 'ring' on a stream, with ncclSend");
  expect_has(route(least).because, "NCCL has no MIN of float32");
  expect_has(route(question(Collective::kGather)).because, "no such collective");
  EXPECT_TRUE(route(compressed("int8")).by_nccl);
  EXPECT_EQ(route(compressed("int8")).because, "it is compressed");
}

// Streams use no schedules by hosts.
TEST(Route, IsNoScheduleByHosts) {
  DevicePathQuery asked = compressed("int8");
  asked.hosts = {{0, 1}, {2, 3}};
  asked.algorithm = "hierarchical";
  EXPECT_TRUE(find_algorithm(asked.algorithm)->hierarchical);
  EXPECT_EQ(route(asked).how.find("'hierarchical'"), std::string::npos) << route(asked).how;
}

TEST(Route, IsByTheHostWhereRanksShareADevice) {
  DevicePathQuery asked = question();
  asked.devices = 2;
  EXPECT_FALSE(route(asked).by_nccl);
  EXPECT_EQ(route(asked).why, "rank 0 and rank 2 use the same device, number 0 of its host");
  EXPECT_TRUE(route(asked, {23003, "", true}).by_nccl);
  asked.hosts = {{0, 1}, {2, 3}};
  EXPECT_TRUE(route(asked).by_nccl) << "they are two hosts' devices";
}

TEST(Route, IsByTheHostWithoutNccl) {
  const DevicePathChoice out = route(question(), {0, "libnccl.so.2 is not there", false});
  EXPECT_FALSE(out.by_nccl);
  EXPECT_EQ(out.why, "rank 0 has no NCCL (libnccl.so.2 is not there)");
}

TEST(Route, IsWhatIsAskedFor) {
  DevicePathQuery asked = question();
  asked.path = "host";
  EXPECT_FALSE(route(asked).by_nccl);
  EXPECT_EQ(route(asked).why, "it is asked for");
  asked.path = "nccl";
  EXPECT_TRUE(route(asked).by_nccl);
  asked.devices = 1;
  const auto refused = explain_path(asked, kFound);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind(), ErrorKind::kNotSupported);
  expect_has(refused.error().message(), "NCCL is asked for, but rank 0 and rank 1");
}

TEST(Route, OfTheHostIsByBoxesForWhatIsLargeOnOneHost) {
  DevicePathQuery asked = question();
  asked.path = "host";
  EXPECT_FALSE(route(asked).host_op);
  expect_has(route(asked).how, "pinned memory that all ranks map");
  asked.request.count = 100;
  EXPECT_TRUE(route(asked).host_op);
  EXPECT_EQ(route(asked).because, "it is of less than 256 KiB");
  asked.request.count = 1 << 20;
  asked.hosts = {{0, 1}, {2, 3}};
  EXPECT_TRUE(route(asked).host_op);
  EXPECT_EQ(route(asked).because, "ranks are on several hosts");
  asked.hosts = {{0}};
  EXPECT_EQ(route(asked).because, "there is one rank");
}

TEST(Route, OfTheHostEncodesOnTheDevice) {
  DevicePathQuery asked = compressed("int8");
  asked.path = "host";
  expect_has(route(asked).because, "it is compressed, and all ranks are on one host");
  asked.hosts = {{0, 1}, {2, 3}};
  EXPECT_FALSE(route(asked).host_op);
  expect_has(route(asked).how, "encoded bytes go by pinned memory and the host");
}

TEST(Route, OfWhatNoKernelTakesIsRefused) {
  for (const char* const path : {"", "host"}) {
    DevicePathQuery asked = compressed("lossless", int64_t{1} << 30);
    asked.path = path;
    const auto refused = explain_path(asked, kFound);
    ASSERT_FALSE(refused.ok());
    expect_has(refused.error().message(), "codec 'lossless' of 1073741824 elements on a device");
  }
}

}  // namespace
}  // namespace ringdist::gpu
