// Ops on devices over each device path, with everything real but the device: communicators,
// runners, and host ops over a transport. FakeCuda provides streams and kernels, which a
// background thread executes, and FakeNccl provides NCCL.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "support/compressed.h"
#include "support/fake_devices.h"
#include "support/floats.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

using Ints = std::vector<int32_t>;

class CudaPath : public testing::TestWithParam<FakeDevices::By> {
 protected:
  RanksOptions options(int size) {
    RanksOptions out;
    out.size = size;
    out.make_runner = [this](int) { return devices_.maker(GetParam()); };
    return out;
  }
  OpRequest on_device(OpRequest request) { return devices_.on_device(std::move(request)); }
  static OpRequest request(Collective kind, int64_t count, Ints* input, Ints* output) {
    return int_request(kind, count, input, output);
  }

  // Submits all requests, each on its own stream, before it waits for any.
  void run_together(Communicator& communicator, std::vector<OpRequest> requests) {
    std::vector<std::shared_ptr<Op>> ops;
    for (OpRequest& one : requests) {
      auto op = communicator.submit(on_device(std::move(one)), /*will_wait=*/false);
      ASSERT_TRUE(op.ok()) << op.error().what();
      ops.push_back(op.value());
    }
    for (const auto& op : ops) {
      const Error error = wait_op(communicator, *op);
      ASSERT_FALSE(error) << error.what();
    }
  }

  FakeDevices devices_;
};

// Collectives with parts of `count_` elements. Tests use few elements, and so many that the parts
// go by mailboxes.
class CudaPathOfSizes : public CudaPath {
 protected:
  static constexpr int kSize = 3;
  using Parts = std::vector<int32_t>;  // value of each part

  Ints of(const Parts& parts) const {
    Ints out;
    for (const int32_t value : parts) out.insert(out.end(), count_, value);
    return out;
  }
  void run(Communicator& communicator, Collective kind, Ints* input, Ints* output) {
    const Error error =
        run_op(communicator, on_device(request(kind, static_cast<int64_t>(count_), input, output)));
    ASSERT_FALSE(error) << error.what();
  }
  void run_all(Communicator& communicator, int rank) {
    Ints sum = of({10 * rank + 1});
    run(communicator, Collective::kAllreduce, nullptr, &sum);
    EXPECT_EQ(sum, of({33}));
    Ints told = of({rank + 5});
    run(communicator, Collective::kBroadcast, nullptr, &told);
    EXPECT_EQ(told, of({5}));
    Ints mine = of({rank}), all = of({-1, -1, -1});
    run(communicator, Collective::kAllgather, &mine, &all);
    EXPECT_EQ(all, of({0, 1, 2}));
    Ints parts = of({1, 3, 5}), part = of({-1});
    run(communicator, Collective::kReduceScatter, &parts, &part);
    EXPECT_EQ(part, of({3 * (2 * rank + 1)}));
    Ints reduced = of({rank});
    run(communicator, Collective::kReduce, nullptr, &reduced);
    EXPECT_EQ(reduced, of({rank == 0 ? 3 : rank}));
    Ints gathered = rank == 0 ? of({-1, -1, -1}) : Ints();
    run(communicator, Collective::kGather, &mine, &gathered);
    EXPECT_EQ(gathered, rank == 0 ? all : Ints());
    Ints scattered = of({-1}), whole = rank == 0 ? parts : Ints();
    run(communicator, Collective::kScatter, &whole, &scattered);
    EXPECT_EQ(scattered, of({2 * rank + 1}));
    Ints sent = of({rank, 10 + rank, 20 + rank}), got = of({-1, -1, -1});
    run(communicator, Collective::kAlltoall, &sent, &got);
    EXPECT_EQ(got, of({10 * rank, 10 * rank + 1, 10 * rank + 2}));
  }

  size_t count_ = 0;
};

TEST_P(CudaPathOfSizes, HasEveryCollective) {
  for (const size_t count : {2, 70'000}) {
    SCOPED_TRACE(count);
    count_ = count;
    Ranks ranks(options(kSize));
    ranks.run([&](int rank) { run_all(ranks[rank], rank); });
  }
}

// NCCL compares no calls, so a mismatch there ends with the timeout.
TEST_P(CudaPathOfSizes, NamesWhatRanksCallInDifferentWays) {
  if (GetParam() == FakeDevices::By::kNccl) GTEST_SKIP() << "NCCL compares nothing";
  for (const size_t count : {2, 70'000}) {
    SCOPED_TRACE(count);
    count_ = count;
    Ranks ranks(options(2));
    ranks.run([&](int rank) {
      // A device may use the memory after the op has ended.
      const auto values = std::make_shared<Ints>(count_);
      OpRequest asked = request(rank == 0 ? Collective::kAllreduce : Collective::kBroadcast,
                                static_cast<int64_t>(count_), nullptr, values.get());
      asked.keep_alive = values;
      const Error error = run_op(ranks[rank], on_device(std::move(asked)));
      ASSERT_TRUE(error);
      EXPECT_NE(error.message().find("disagree"), std::string::npos) << error.what();
      EXPECT_NE(error.message().find("broadcast(int32"), std::string::npos) << error.what();
    });
  }
}

TEST_P(CudaPath, SendsAndReceivesBesideCollectives) {
  Ranks ranks(options(2));
  ranks.run([&](int rank) {
    Ints out{7 + rank, 8}, in(2), sum{1, 1};
    OpRequest send = request(Collective::kPointToPoint, 2, &out, nullptr);
    send.envelope = Envelope{1 - rank, 0, true};
    OpRequest receive = request(Collective::kPointToPoint, 2, nullptr, &in);
    receive.envelope = Envelope{1 - rank, 0, false};
    // The two ranks submit in different orders.
    std::vector<OpRequest> order{send, request(Collective::kAllreduce, 2, nullptr, &sum), receive};
    if (rank == 1) std::swap(order[0], order[2]);
    run_together(ranks[rank], std::move(order));
    EXPECT_EQ(in, (Ints{8 - rank, 8}));
    EXPECT_EQ(sum, (Ints{2, 2}));
  });
}

// Both ranks send before they receive, and more than any eager window holds.
TEST_P(CudaPath, SendsDoNotWaitForWhatComesTheOtherWay) {
  constexpr size_t kLarge = 1 << 18;
  Ranks ranks(options(2));
  ranks.run([&](int rank) {
    Ints out(kLarge, rank + 1), in(kLarge);
    std::vector<OpRequest> both;
    for (const bool sends : {true, false}) {
      both.push_back(request(Collective::kPointToPoint, kLarge, sends ? &out : nullptr,
                             sends ? nullptr : &in));
      both.back().envelope = Envelope{1 - rank, 0, sends};
    }
    run_together(ranks[rank], std::move(both));
    EXPECT_EQ(in, Ints(kLarge, 2 - rank));
  });
}

// Each rank's first send goes to the next rank and its first receive comes from the previous one,
// as in a coalescing region (CallSubmitter::prepare).
TEST_P(CudaPath, RanksInARingDoNotWaitForEachOther) {
  constexpr int kSize = 3;
  Ranks ranks(options(kSize));
  ranks.run([&](int rank) {
    Ints out{rank}, in{-1};
    OpRequest send = request(Collective::kPointToPoint, 1, &out, nullptr);
    send.envelope = Envelope{(rank + 1) % kSize, 0, true};
    OpRequest receive = request(Collective::kPointToPoint, 1, nullptr, &in);
    receive.envelope = Envelope{(rank + 2) % kSize, 0, false};
    send = on_device(std::move(send));
    receive = on_device(std::move(receive));
    // Rank 2 pairs with 0 and then with 1. For the other ranks, the first pair is the one with the
    // next rank.
    const bool send_first = rank != 1;
    const std::vector<const OpRequest*> order =
        send_first ? std::vector<const OpRequest*>{&send, &receive}
                   : std::vector<const OpRequest*>{&receive, &send};
    const Error prepared = ranks[rank].prepare(order);
    ASSERT_FALSE(prepared) << prepared.what();
    const auto sent = ranks[rank].submit(std::move(send), /*will_wait=*/false);
    const auto received = ranks[rank].submit(std::move(receive), /*will_wait=*/false);
    ASSERT_TRUE(sent.ok() && received.ok());
    ASSERT_FALSE(wait_op(ranks[rank], *sent.value()));
    ASSERT_FALSE(wait_op(ranks[rank], *received.value()));
    EXPECT_EQ(in, Ints{(rank + 2) % kSize});
  });
}

// Ops of the host and of devices share one order, and a barrier waits for both.
TEST_P(CudaPath, ServesTheHostsTensorsBeside) {
  Ranks ranks(options(3));
  ranks.run([&](int rank) {
    for (int round = 0; round < 20; ++round) {
      Ints here{rank, 1}, there{rank, 2};
      auto on = ranks[rank].submit(on_device(request(Collective::kAllreduce, 2, nullptr, &there)),
                                   /*will_wait=*/false);
      ASSERT_TRUE(on.ok());
      ASSERT_FALSE(run_op(ranks[rank], request(Collective::kAllreduce, 2, nullptr, &here)));
      OpRequest barrier;
      barrier.kind = Collective::kBarrier;
      barrier.dtype = DType::kBytes;
      ASSERT_FALSE(run_op(ranks[rank], std::move(barrier)));
      EXPECT_TRUE(on.value()->finished());
      EXPECT_EQ(here, (Ints{3, 3}));
      EXPECT_EQ(there, (Ints{3, 6}));
    }
  });
}

TEST_P(CudaPath, GivesCompressedOpsTheBitsOfTheCpu) {
  constexpr int kSize = 3;
  constexpr size_t kCount = 3001;
  RanksOptions with = options(kSize);
  with.config = {{"algorithm", "direct"}};
  for (const char* codec : {"int4", "int8", "onebit", "topk:10", "lossless"}) {
    SCOPED_TRACE(codec);
    Ranks ranks(with);
    Ranks plain([&] {
      RanksOptions out = with;
      out.make_runner = nullptr;
      return out;
    }());
    std::vector<Floats> results(kSize), old_residual(kSize);
    const auto run = [&](int rank, Ranks& group, bool device, Floats& result, Floats& residual) {
      Tensor tensor(DType::kFloat32, kCount);
      residual.assign(kCount, 0.0f);
      for (int step = 0; step < 3; ++step) {
        tensor.set(gradient(20261125, rank, step, kCount));
        OpRequest asked = tensor.request(ReduceOp::kAvg);
        asked.codec_map = make_map(codec, kSize, kCount, &residual);
        const Error error =
            run_op(group[rank], device ? on_device(std::move(asked)) : std::move(asked));
        ASSERT_FALSE(error) << error.what();
      }
      result = tensor.values();
    };
    ranks.run([&](int rank) {
      run(rank, ranks, true, results[static_cast<size_t>(rank)],
          old_residual[static_cast<size_t>(rank)]);
    });
    plain.run([&](int rank) {
      Floats result, residual;
      run(rank, plain, false, result, residual);
      EXPECT_TRUE(same(results[static_cast<size_t>(rank)], result)) << "rank " << rank;
      EXPECT_TRUE(same(old_residual[static_cast<size_t>(rank)], residual)) << "rank " << rank;
    });
  }
}

// Lists of tensors, and parts of different sizes.
TEST_P(CudaPath, TakesPartsOfAnySizeAndPlace) {
  constexpr int kSize = 3;
  Ranks ranks(options(kSize));
  ranks.run([&](int rank) {
    const auto in_two = [](Ints& values) {
      Buffer out(sizeof(int32_t));
      out.append(values.data(), 1);
      out.append(values.data() + 1, static_cast<int64_t>(values.size()) - 1);
      return out;
    };
    Ints a{rank, 1, 2};
    OpRequest list = request(Collective::kAllreduce, 3, nullptr, &a);
    list.output = in_two(a);
    ASSERT_FALSE(run_op(ranks[rank], on_device(std::move(list))));
    EXPECT_EQ(a, (Ints{3, 3, 6}));

    Ints mine{rank, rank}, all(6);
    OpRequest gather = request(Collective::kAllgather, 2, &mine, &all);
    gather.output = in_two(all);
    ASSERT_FALSE(run_op(ranks[rank], on_device(std::move(gather))));
    EXPECT_EQ(all, (Ints{0, 0, 1, 1, 2, 2}));

    Ints some(static_cast<size_t>(rank), rank), uneven(3);
    OpRequest parts = request(Collective::kAllgather, 2, &some, &uneven);
    parts.output_parts = {0, 1, 2};
    ASSERT_FALSE(run_op(ranks[rank], on_device(std::move(parts))));
    EXPECT_EQ(uneven, (Ints{1, 2, 2}));

    Ints whole{1, 2, 3}, own(static_cast<size_t>(rank));
    OpRequest scatter = request(Collective::kReduceScatter, 2, &whole, &own);
    scatter.input_parts = {0, 1, 2};
    ASSERT_FALSE(run_op(ranks[rank], on_device(std::move(scatter))));
    EXPECT_EQ(own, rank == 0 ? Ints{} : rank == 1 ? Ints{3} : (Ints{6, 9}));

    // Each rank sends its own number to each peer, as many times as the number of the peer.
    Ints out(3, rank), in(static_cast<size_t>(rank) * kSize);
    OpRequest exchange = request(Collective::kAlltoall, 0, &out, &in);
    exchange.input_parts = {0, 1, 2};
    exchange.output_parts = std::vector<int64_t>(kSize, rank);
    ASSERT_FALSE(run_op(ranks[rank], on_device(std::move(exchange))));
    EXPECT_EQ(in, rank == 0 ? Ints{} : rank == 1 ? (Ints{0, 1, 2}) : (Ints{0, 0, 1, 1, 2, 2}));
  });
}

// The bits must equal those of the CPU, also where NCCL lacks the reduction.
TEST_P(CudaPath, HasEveryReduction) {
  Ranks ranks(options(3));
  ranks.run([&](int rank) {
    const auto reduced = [&](DType dtype, ReduceOp op, auto values) {
      OpRequest asked;
      asked.kind = Collective::kAllreduce;
      asked.dtype = dtype;
      asked.reduce_op = op;
      asked.count = static_cast<int64_t>(values.size());
      asked.output = Buffer(sizeof(values[0]));
      asked.output.append(values.data(), asked.count);
      const Error error = run_op(ranks[rank], on_device(std::move(asked)));
      EXPECT_FALSE(error) << error.what();
      return values;
    };
    using Shorts = std::vector<int16_t>;
    const auto r = static_cast<int16_t>(rank);
    EXPECT_EQ(reduced(DType::kInt16, ReduceOp::kSum, Shorts{r, 5}), (Shorts{3, 15}));
    EXPECT_EQ(reduced(DType::kInt32, ReduceOp::kBxor, Ints{1 << rank, 7}), (Ints{7, 7}));
    EXPECT_EQ(reduced(DType::kInt32, ReduceOp::kMax, Ints{rank, -rank}), (Ints{2, 0}));
    EXPECT_EQ(reduced(DType::kInt32, ReduceOp::kAvg, Ints{rank, -1}), (Ints{1, -1}));
    EXPECT_EQ(reduced(DType::kFloat32, ReduceOp::kAvg, Floats{1.0f * static_cast<float>(rank)}),
              Floats{1.0f});
    EXPECT_EQ(reduced(DType::kFloat32, ReduceOp::kProduct, Floats{2.0f}), Floats{8.0f});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(
        std::isnan(reduced(DType::kFloat32, ReduceOp::kMin, Floats{rank == 1 ? nan : 1.0f})[0]));
    using Bools = std::vector<uint8_t>;
    EXPECT_EQ(reduced(DType::kBool, ReduceOp::kSum, Bools{rank == 2 ? uint8_t{2} : uint8_t{0}, 0}),
              (Bools{1, 0}));
  });
}

TEST_P(CudaPath, AnAbortEndsWhatIsOnTheDevices) {
  Ranks ranks(options(2));
  ranks.run([&](int rank) {
    Ints warm{1, 1};
    ASSERT_FALSE(
        run_op(ranks[rank], on_device(request(Collective::kAllreduce, 2, nullptr, &warm))));
    if (rank == 1) return ranks[rank].abort("made up");
    // A device may use the memory after the op has ended.
    const auto values = std::make_shared<Ints>(Ints{1, 2});
    OpRequest asked = request(Collective::kAllreduce, 2, nullptr, values.get());
    asked.keep_alive = values;
    const Error error = run_op(ranks[rank], on_device(std::move(asked)));
    ASSERT_TRUE(error);
    EXPECT_NE(error.message().find("made up"), std::string::npos) << error.message();
  });
}

std::string way_name(const testing::TestParamInfo<FakeDevices::By>& by) {
  switch (by.param) {
    case FakeDevices::By::kNccl:
      return "by_nccl";
    case FakeDevices::By::kHost:
      return "by_host";
    case FakeDevices::By::kApart:
      return "by_hosts_apart";
    case FakeDevices::By::kOneQueue:
      return "by_host_on_one_queue";
  }
  return "";
}
const auto kDeviceWays = testing::Values(FakeDevices::By::kNccl, FakeDevices::By::kHost,
                                         FakeDevices::By::kApart, FakeDevices::By::kOneQueue);

INSTANTIATE_TEST_SUITE_P(All, CudaPath, kDeviceWays, way_name);
INSTANTIATE_TEST_SUITE_P(All, CudaPathOfSizes, kDeviceWays, way_name);

}  // namespace
}  // namespace ringdist
