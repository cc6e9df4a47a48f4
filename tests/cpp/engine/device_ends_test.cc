// Ops on devices while their group forms, and when it ends.
#include <gtest/gtest.h>

#include <thread>

#include "engine/fake_device_runner.h"
#include "support/hooked_store.h"

namespace ringdist::test {
namespace {

// The plan of an op depends on the hosts of the group, even for the first op.
TEST(DeviceEnds, TheFirstWaitsForTheMembers) {
  RanksOptions options = ranks_of(2);
  options.store = [](int rank, std::shared_ptr<Store> store) -> std::shared_ptr<Store> {
    return std::make_shared<HookedStore>(std::move(store), [rank](std::string_view what) {
      if (rank == 1 && what == "check") std::this_thread::sleep_for(Milliseconds(200));
    });
  };
  DeviceRanks ranks(options);
  ranks.ranks().run([&](int rank) {
    ranks.device(rank).captures = true;
    std::vector<float> data(16, 1.0f);
    EXPECT_FALSE(run_op(ranks[rank], on_device(data)));
  });
}

TEST(DeviceEnds, TheFirstEndsWithAGroupThatDoesNotForm) {
  Ranks nobody({});  // rank 1 of the group below never appears
  const auto device = std::make_shared<FakeDevice>();
  CommunicatorOptions wanted;
  wanted.size = 2;
  wanted.name = "half";
  wanted.members = {0, 1};
  wanted.timeout = Milliseconds(500);
  wanted.config = nobody.config();
  wanted.store = std::make_shared<MapStore>();
  wanted.make_runner = FakeDevice::maker(device);
  const auto made = Communicator::create(
      std::shared_ptr<Context>(std::shared_ptr<Context>(), &nobody.context(0)), std::move(wanted));
  ASSERT_TRUE(made.ok());
  std::vector<float> data(16, 1.0f);
  const Error error = run_op(*made.value(), on_device(data));
  EXPECT_TRUE(says(error, "rank 1")) << text_of(error);
  EXPECT_EQ(device->made(), 0);
}

// While a device call waits for other ranks, host ops, abort() and timeout() still work.
TEST(DeviceEnds, OneThatIsBeingPreparedHoldsUpNothing) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    device.prepare = [&](RunnerDelegate&, const OpSpec&, TimePoint deadline) {
      return device.await_abort(deadline) ? Error(ErrorKind::kAborted, "told to stop") : Error();
    };
    std::vector<float> data(16, 1.0f);
    std::thread other([&] {
      const Error error = run_op(ranks[rank], on_device(data));
      EXPECT_TRUE(says(error, "for a test")) << text_of(error);
    });
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(host_op(ranks[rank]));
    EXPECT_EQ(ranks[rank].timeout(), Milliseconds(20000));
    if (rank == 0) {
      while (device.made() == 0 || ranks.device(1).made() == 0) std::this_thread::yield();
      ranks[0].abort("for a test");
    }
    other.join();
    EXPECT_TRUE(device.await_abort(Clock::now() + kHang));
    EXPECT_EQ(device.aborts(), 1);
    EXPECT_EQ(ranks[rank].sequence_number(), 10u);
  });
}

// The other ranks wait for this one, and must not do so until the timeout of their op.
TEST(DeviceEnds, OneThatCannotBePreparedEndsTheGroup) {
  DeviceRanks ranks(ranks_of(3));
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    device.prepare = [&, rank](RunnerDelegate& group, const OpSpec&, TimePoint deadline) {
      if (rank == 1) return Error(ErrorKind::kSystem, "the driver is out of memory");
      const std::vector<std::byte> mine(4);
      return group.exchange({0, 1, 2}, mine, deadline).error();
    };
    std::vector<float> data(16, 1.0f);
    const Error error = run_op(ranks[rank], on_device(data));
    EXPECT_TRUE(says(error, "out of memory")) << text_of(error);
    EXPECT_EQ(says(error, "rank 1"), rank != 1) << text_of(error);
    EXPECT_NE(error.kind(), ErrorKind::kTimeout);
    EXPECT_TRUE(says(host_op(ranks[rank]), "out of memory"));
  });
}

TEST(DeviceEnds, CloseWaitsForThem) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    std::vector<float> data(16, 1.0f);
    const auto op = submitted(ranks[rank], on_device(data));
    std::thread later([&] {
      std::this_thread::sleep_for(Milliseconds(100));
      EXPECT_EQ(device.destroyed(), 0);
      device.end(0);
    });
    ranks[rank].close();
    EXPECT_TRUE(op->finished());
    EXPECT_FALSE(op->error()) << text_of(op->error());
    later.join();
    EXPECT_EQ(device.destroyed(), 1);
    const Error next = run_op(ranks[rank], on_device(data));
    EXPECT_TRUE(says(next, "has been destroyed")) << text_of(next);
  });
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(ranks.device(rank).aborts(), 0);
}

// If the group of an op is gone, completions of the device are ignored.
TEST(DeviceEnds, AGroupThatIsDroppedStopsTheDevice) {
  DeviceRanks ranks(ranks_of(2));
  std::vector<std::shared_ptr<Op>> ops(2);
  std::vector<std::function<void(Error)>> ended(2);
  std::vector<float> data(16, 1.0f);
  for (int rank = 0; rank < 2; ++rank) {
    ops[rank] = submitted(ranks[rank], on_device(data));
    ended[rank] = ranks.device(rank).ended(0);
  }
  ranks.ranks().drop_group();
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(ranks.device(rank).await_end());
    EXPECT_EQ(ranks.device(rank).aborts(), 1);
    for (int i = 0; i < 500 && !ops[rank]->finished(); ++i)
      std::this_thread::sleep_for(Milliseconds(10));
    EXPECT_TRUE(ops[rank]->error());
    ended[rank]({});
  }
}

TEST(DeviceEnds, AProcessThatEndsLetsTheDeviceGo) {
  DeviceRanks ranks(ranks_of(2));
  ranks.ranks().run([&](int rank) {
    std::vector<float> data(16, 1.0f);
    const auto op = submitted(ranks[rank], on_device(data));
    ranks.device(rank).end(0);
    EXPECT_FALSE(wait_op(ranks[rank], *op));
    ranks.ranks().context(rank).shutdown();
    EXPECT_EQ(ranks.device(rank).destroyed(), 1);
  });
}

}  // namespace
}  // namespace ringdist::test
