#include "engine/op/op_statistics.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/requests.h"

namespace ringdist::test {
namespace {

using std::chrono::microseconds;

constexpr TimePoint kEpoch{};

TEST(DurationHistogram, EachBucketEndsAtAPowerOfTwo) {
  DurationHistogram histogram;
  for (const int ns : {-5, 0, 1024, 1025, 2048, 2049, 4096, 4097})
    histogram.add(std::chrono::nanoseconds(ns));
  EXPECT_EQ(histogram.json(), R"({"sum":0.000014,"counts":[3,2,2,1]})");
  DurationHistogram other;
  other.add(std::chrono::hours(1));
  other.add(std::chrono::seconds(69));
  other.add(std::chrono::seconds(68));
  histogram.merge(other);
  const std::string text = histogram.json();
  EXPECT_EQ(text.substr(text.rfind(',')), ",2]}") << "those of more than 68.7 s";
  EXPECT_NE(text.find("[3,2,2,1,0,"), std::string::npos) << text;
}

// Counts an op of `count` floats that took `us` microseconds and waited for half of them.
void add(OpStatistics& to, OpRequest request, int64_t us, bool failed = false) {
  Op op(std::move(request));
  op.started = kEpoch;
  op.longest_wait = microseconds(us / 2);
  to.add(op, kEpoch + microseconds(us), failed);
}

OpRequest sum_of(size_t count) {
  static std::vector<float> data;
  data.resize(count);
  return allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
}

TEST(OpStatistics, HasARowForEachKindCodecAndSize) {
  OpStatistics statistics;
  EXPECT_EQ(statistics.json(), "[]");
  add(statistics, sum_of(2), 4);
  add(statistics, sum_of(2), 8);
  add(statistics, sum_of(2), 1000, /*failed=*/true);
  add(statistics, sum_of(3), 4);
  OpRequest coded = sum_of(4);
  CodecMap map;
  map.parts.push_back({0, 4, parse_codec_pair("int4", 2).value()});
  coded.codec_map = std::make_shared<CodecMap>(std::move(map));
  add(statistics, std::move(coded), 4);
  for (const bool sends : {true, false}) {
    OpRequest message;
    message.kind = Collective::kPointToPoint;
    message.envelope = Envelope{.peer = 1, .sends = sends};
    add(statistics, std::move(message), 4);
  }
  EXPECT_EQ(statistics.count(), 7u);
  const std::string text = statistics.json();
  const std::string times = R"("duration":{"sum":0.000004,"counts":[0,0,1]},)"
                            R"("wait":{"sum":0.000002,"counts":[0,1]}})";
  const auto row = [](const std::string& name, const std::string& codec, const std::string& size) {
    return R"({"operation":")" + name + R"(","codec":")" + codec + R"(","size":)" + size;
  };
  EXPECT_EQ(text, "[" + row("all_reduce", "", "8") + R"(,"count":3,"failed":1,"bytes":16,)" +
                      R"("duration":{"sum":0.000012,"counts":[0,0,1,1]},)" +
                      R"("wait":{"sum":0.000006,"counts":[0,1,1]}},)" +
                      row("all_reduce", "", "16") + R"(,"count":1,"failed":0,"bytes":12,)" + times +
                      "," + row("all_reduce", "int4", "16") +
                      R"(,"count":1,"failed":0,"bytes":16,)" + times + "," + row("recv", "", "0") +
                      R"(,"count":1,"failed":0,"bytes":0,)" + times + "," + row("send", "", "0") +
                      R"(,"count":1,"failed":0,"bytes":0,)" + times + "]");
  OpStatistics all = statistics;
  all.merge(statistics);
  EXPECT_EQ(all.count(), 14u);
  EXPECT_NE(all.json().find(R"("size":8,"count":6,"failed":2,"bytes":32,)"), std::string::npos);
}

TEST(PeerTraffic, CountsTheTimeWithSendsInFlight) {
  PeerTrafficTable table;
  const auto row = table.row(7, "shm", "pid 1", true);
  EXPECT_EQ(table.row(7, "shm", "pid 1", true), row);
  EXPECT_NE(table.row(7, "ucx", "pid 1", true), row);
  row->begin_send(kEpoch);
  row->begin_send(kEpoch + microseconds(10));
  row->end_send(kEpoch + microseconds(20));
  row->end_send(kEpoch + microseconds(30));
  row->begin_send(kEpoch + microseconds(100));
  row->sent(5);
  row->sent(6);
  row->received(6);
  EXPECT_NE(table.json(kEpoch + microseconds(102))
                .find(R"("transport":"shm","where":"pid 1","bytes_sent":11,"bytes_received":6,)"
                      R"("messages_sent":2,"messages_received":1,"sending":0.000032})"),
            std::string::npos);
}

TEST(PeerTraffic, ManyPeersShareARow) {
  PeerTrafficTable table;
  std::vector<std::shared_ptr<PeerTraffic>> used;
  for (uint64_t id = 1; id <= PeerTrafficTable::kMost; ++id) {
    const auto row = table.row(id, "shm", "", true);
    row->sent(1);
    row->begin_send(kEpoch);
    if (id != 1) row->end_send(kEpoch);  // no group uses the first, but it will be completed
    if (id % 2 == 0) used.push_back(row);
  }
  const std::string others = R"("context":"","transport":"","where":"others")";
  EXPECT_EQ(table.json(kEpoch).find(others), std::string::npos);
  const auto next = table.row(100, "shm", "", true);
  EXPECT_NE(table.json(kEpoch).find(others + R"(,"bytes_sent":31)"), std::string::npos)
      << "half of the rows, but for the first";
  for (uint64_t id = 200; id < 230; ++id) used.push_back(table.row(id, "shm", "", true));
  const auto shared = table.row(300, "shm", "", true);
  EXPECT_EQ(shared, table.row(301, "shm", "", true)) << "all rows are in use";
  shared->sent(2);
  EXPECT_NE(table.json(kEpoch).find(others + R"(,"bytes_sent":33)"), std::string::npos);
  EXPECT_EQ(next, table.row(100, "shm", "", true));
}

}  // namespace
}  // namespace ringdist::test
