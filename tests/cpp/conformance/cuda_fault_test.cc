// Failures of NCCL: any call at any time fails, or calls complete late.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/store.h"
#include "support/compressed.h"
#include "support/fake_devices.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr int kFaultRanks = 2;
using Values = std::vector<int32_t>;

// Runs a small program on two ranks over NCCL: each operation once, and a split.
class CudaFault : public testing::Test {
 protected:
  static RanksOptions options(FakeDevices& devices) {
    RanksOptions out;
    out.size = kFaultRanks;
    out.config = {{"algorithm", "direct"}};
    out.make_runner = [&devices](int) { return devices.maker(FakeDevices::By::kNccl); };
    return out;
  }

  // The op keeps its memory alive, because a device may use it after the op has ended.
  static OpRequest request(Collective kind, int64_t count, const std::shared_ptr<Values>& input,
                           const std::shared_ptr<Values>& output) {
    OpRequest out = int_request(kind, count, input.get(), output.get());
    out.keep_alive = std::make_shared<std::pair<std::shared_ptr<Values>, std::shared_ptr<Values>>>(
        input, output);
    return out;
  }

  // Returns the rank's first error. Results before it must be right.
  static Error run_program(FakeDevices& devices, Communicator& communicator, int rank) {
    const auto values = [](Values of) { return std::make_shared<Values>(std::move(of)); };
    const auto run = [&](Collective kind, int64_t count, const std::shared_ptr<Values>& input,
                         const std::shared_ptr<Values>& output, const Values& expected) {
      const Error error =
          run_op(communicator, devices.on_device(request(kind, count, input, output)));
      EXPECT_TRUE(error || !output || *output == expected) << "rank " << rank;
      return error;
    };
    if (Error error = run(Collective::kAllreduce, 2, nullptr, values({rank, 5}), {1, 10}))
      return error;
    if (Error error = run(Collective::kBroadcast, 2, nullptr, values({rank, rank}), {0, 0}))
      return error;
    if (Error error = run(Collective::kAllgather, 1, values({rank + 1}), values({0, 0}), {1, 2}))
      return error;
    if (Error error =
            run(Collective::kReduceScatter, 1, values({3, 4}), values({0}), {rank == 0 ? 6 : 8}))
      return error;
    for (const bool sends : {rank == 0, rank != 0}) {
      const auto told = values({rank + 7});
      OpRequest one =
          request(Collective::kPointToPoint, 1, sends ? told : nullptr, sends ? nullptr : told);
      one.envelope = Envelope{1 - rank, 0, sends};
      if (Error error = run_op(communicator, devices.on_device(std::move(one)))) return error;
      EXPECT_EQ(*told, (Values{sends ? rank + 7 : 1 - rank + 7})) << "rank " << rank;
    }
    return run_compressed(devices, communicator);
  }

  // Also runs an op on a subgroup that contains all ranks in another order.
  static Error run_split(FakeDevices& devices, Ranks& ranks, Communicator& whole, int rank) {
    const std::string name = whole.name() + " split";
    const auto store = std::make_shared<PrefixStore>(ranks.store(), name);
    const auto made = whole.subgroup({1, 0}, store, name, Milliseconds(20000));
    if (!made.ok()) return made.error();
    const auto values = std::make_shared<Values>(1, rank);
    const Error error = run_op(
        *made.value(), devices.on_device(request(Collective::kBroadcast, 1, nullptr, values)));
    EXPECT_TRUE(error || *values == Values{1}) << "rank " << rank;
    if (!error) made.value()->close();
    return error;
  }
  static Error run_all(FakeDevices& devices, Ranks& ranks, Communicator& communicator, int rank) {
    const Error error = run_program(devices, communicator, rank);
    return error ? error : run_split(devices, ranks, communicator, rank);
  }

  static Error run_compressed(FakeDevices& devices, Communicator& communicator) {
    const auto tensor = std::make_shared<Tensor>(DType::kFloat32, 700);
    tensor->set(std::vector<float>(700, 2.0f));
    OpRequest asked = tensor->request(ReduceOp::kAvg);
    asked.codec_map = make_map("int8", kFaultRanks, 700, nullptr);
    asked.keep_alive = tensor;
    const Error error = run_op(communicator, devices.on_device(std::move(asked)));
    EXPECT_TRUE(error || std::abs(tensor->values()[99] - 2.0f) < 0.1f);
    return error;
  }
};

// If any call fails, the ops of all ranks end soon with an error that names NCCL. All
// communicators are freed, and another group works.
TEST_F(CudaFault, AnyCallThatFailsEndsTheGroup) {
  int calls = 0;
  {
    FakeDevices devices;
    Ranks ranks(options(devices));
    ranks.run([&](int rank) { ASSERT_FALSE(run_all(devices, ranks, ranks[rank], rank)); });
    calls = devices.nccl.calls();
  }
  ASSERT_GT(calls, 20);
  for (int failing = 0; failing < calls; ++failing) {
    SCOPED_TRACE("call " + std::to_string(failing));
    FakeDevices devices;
    devices.nccl.fail_call(failing, gpu::NcclResult::kSystemError);
    {
      Ranks ranks(options(devices));
      std::vector<Error> errors(kFaultRanks);
      ranks.run([&](int rank) {
        errors[static_cast<size_t>(rank)] = run_all(devices, ranks, ranks[rank], rank);
      });
      for (const Error& error : errors) {
        if (!error) continue;
        EXPECT_NE(error.kind(), ErrorKind::kTimeout) << error.what();
        EXPECT_NE(error.message().find("NCCL"), std::string::npos) << error.what();
      }
      ranks.drop_group();
      if (failing >= devices.nccl.calls())
        continue;  // this run made fewer calls than the first one
      const auto others = ranks.another("afterwards");
      ranks.run([&](int rank) {
        const Error error = run_all(devices, ranks, *others[static_cast<size_t>(rank)], rank);
        ASSERT_FALSE(error) << error.what();
      });
    }
    const TimePoint limit =
        Clock::now() + kHang;  // another thread may hold the last reference to a group
    while (devices.nccl.alive() > 0 && Clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(devices.nccl.alive(), 0U);
  }
}

TEST_F(CudaFault, CallsMayTakeTheirTime) {
  FakeDevices devices;
  devices.nccl.set_lag(5);
  Ranks ranks(options(devices));
  ranks.run([&](int rank) {
    const Error error = run_all(devices, ranks, ranks[rank], rank);
    ASSERT_FALSE(error) << error.what();
  });
}

}  // namespace
}  // namespace ringdist
