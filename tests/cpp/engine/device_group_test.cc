// Communication of device runners on several ranks while they prepare an op.
#include "engine/device/device_group.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <future>
#include <thread>

#include "engine/fake_device_runner.h"

namespace ringdist::test {
namespace {

using Everyones = std::vector<std::vector<std::byte>>;

std::vector<std::byte> bytes_of(int rank, size_t count) {
  return std::vector<std::byte>(count, static_cast<std::byte>(rank + 1));
}

// Returns host ops like those that the runner of a Communicator gets.
HostOps ops_of(std::shared_ptr<Communicator> one) {
  return {[one](OpRequest request) { return one->submit(std::move(request), false); },
          [one](const Op& op) { one->wait(op, std::nullopt); }};
}

std::unique_ptr<RunnerDelegate> group_of(Communicator& one) {
  return std::make_unique<DeviceGroup>(
      one.rank(), one.size(), ops_of(one.shared_from_this()),
      [&one](const std::string& suffix) -> Result<HostOps> {
        auto made = one.duplicate(suffix);
        EXPECT_TRUE(made.ok());
        return ops_of(made.value());
      },
      [](const CpuSet&) {});
}

void expect_exchanged(RunnerDelegate& group, const std::vector<int>& ranks, size_t count = 128) {
  const auto mine = bytes_of(group.rank(), count);
  const auto all = group.exchange(ranks, mine, Clock::now() + kHang);
  ASSERT_TRUE(all.ok()) << all.error().what();
  Everyones expected;
  for (const int rank : ranks) expected.push_back(bytes_of(rank, count));
  EXPECT_EQ(all.value(), expected);
}

TEST(DeviceGroup, AllRanksExchange) {
  for (const int size : {1, 2, 3, 5}) {
    Ranks ranks(ranks_of(size));
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    ranks.run([&](int rank) {
      const auto group = group_of(ranks[rank]);
      EXPECT_EQ(group->rank(), rank);
      EXPECT_EQ(group->size(), size);
      for (const size_t count : {size_t{128}, size_t{1}, size_t{100000}})
        expect_exchanged(*group, all, count);
      EXPECT_EQ(ranks[rank].sequence_number(), 0u) << "it takes no numbers of the group's ops";
    });
  }
}

// Other ranks take no part, and either of the two may call first.
TEST(DeviceGroup, TwoRanksExchange) {
  Ranks ranks(ranks_of(3));
  ranks.run([&](int rank) {
    if (rank == 1) return;
    const auto group = group_of(ranks[rank]);
    expect_exchanged(*group, {0, 2});
    expect_exchanged(*group, {2, 0}, 100000);
  });
}

TEST(DeviceGroup, ExchangesMeetNoOtherOps) {
  Ranks ranks(ranks_of(3));
  ranks.run([&](int rank) {
    const auto group = group_of(ranks[rank]);
    const auto with = [&](int a, int b) {
      if (rank == a || rank == b) expect_exchanged(*group, {a, b});
    };
    std::vector<float> data(16, 1.0f);
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kNone);
    request.kind = Collective::kPointToPoint;
    request.envelope = Envelope{(rank + 2) % 3, 0, /*sends=*/false};
    const auto received = ranks[rank].submit(request, false).value();
    with(0, 1);
    EXPECT_FALSE(host_op(ranks[rank]));
    expect_exchanged(*group, {0, 1, 2});
    std::thread beside([&] { EXPECT_FALSE(host_op(ranks[rank])); });
    with(1, 2);
    with(0, 2);
    expect_exchanged(*group, {0, 1, 2}, 5);
    with(0, 1);
    beside.join();
    std::swap(request.input, request.output);
    request.envelope = Envelope{(rank + 1) % 3, 0, /*sends=*/true};
    EXPECT_FALSE(run_op(ranks[rank], request));
    EXPECT_FALSE(wait_op(ranks[rank], *received));
  });
}

// Exchanges run inside prepare(), which the runner calls in the order of the ops.
TEST(DeviceGroup, ExchangesWhileOpsArePrepared) {
  DeviceRanks ranks(ranks_of(3));
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    device.captures = true;
    int prepared = 0;
    device.prepare = [&](RunnerDelegate& group, const OpSpec& request, TimePoint) {
      ++prepared;
      if (const auto& envelope = request.envelope)
        expect_exchanged(group, {std::min(rank, envelope->peer), std::max(rank, envelope->peer)});
      else
        expect_exchanged(group, {0, 1, 2});
      return Error();
    };
    std::vector<float> data(16, 1.0f);
    if (rank != 2) {
      EXPECT_FALSE(run_op(ranks[rank], message_on_device(data, 1 - rank, rank == 0)));
    }
    EXPECT_FALSE(run_op(ranks[rank], on_device(data)));
    EXPECT_FALSE(host_op(ranks[rank]));
    EXPECT_EQ(prepared, rank == 2 ? 1 : 2);
    ranks[rank].close();
  });
}

TEST(DeviceGroup, ARankThatDoesNotComeIsNamed) {
  Ranks ranks(ranks_of(3));
  ranks.run([&](int rank) {
    EXPECT_FALSE(host_op(ranks[rank]));
    const auto group = group_of(ranks[rank]);
    expect_exchanged(*group, {0, 1, 2});
    if (rank != 2) {
      const auto all =
          group->exchange({0, 1, 2}, bytes_of(rank, 4), Clock::now() + Milliseconds(500));
      ASSERT_FALSE(all.ok());
      EXPECT_EQ(all.error().kind(), ErrorKind::kTimeout);
      EXPECT_NE(all.error().message().find("rank 2"), std::string::npos) << all.error().message();
    }
    EXPECT_FALSE(host_op(ranks[rank])) << "the group itself goes on";
  });
}

TEST(DeviceGroup, EndsWithItsGroup) {
  for (const bool pair : {true, false}) {
    Ranks ranks(ranks_of(3));
    ranks.run([&](int rank) {
      const auto group = group_of(ranks[rank]);
      expect_exchanged(*group, {0, 1, 2});
      if (rank == 1) {
        std::this_thread::sleep_for(Milliseconds(100));
        return ranks[1].abort("for a test");
      }
      if (pair && rank == 2) return;
      const auto all = group->exchange(pair ? std::vector{0, 1} : std::vector{0, 1, 2},
                                       bytes_of(rank, 4), Clock::now() + kHang);
      ASSERT_FALSE(all.ok());
      EXPECT_NE(all.error().message().find("for a test"), std::string::npos)
          << all.error().message();
    });
  }
}

TEST(DeviceGroup, SharesMemoryNearItsDevice) {
  Ranks ranks(ranks_of(2));
  ranks.run([&](int rank) {
    const auto here = [] { return CpuSet::of(pthread_self()); };
    const CpuSet before = here();
    const CpuSet one = CpuSet::parse(std::to_string(sched_getcpu())).value();
    CpuSet moved;
    std::vector<CpuSet> seen;
    const auto make = [&](const std::string& suffix) -> Result<HostOps> {
      const HostOps ops = ops_of(ranks[rank].duplicate(suffix).value());
      return HostOps{ops.submit, [&seen, here, ops](const Op& op) {
                       seen.push_back(here());
                       ops.await(op);
                     }};
    };
    DeviceGroup group(rank, 2, ops_of(ranks[rank].shared_from_this()), make,
                      [&](const CpuSet& cpus) { moved = cpus; });
    group.set_affinity(one);
    EXPECT_EQ(moved, one);
    EXPECT_TRUE(group.share(100, Clock::now() + kHang).ok());
    ASSERT_FALSE(seen.empty());
    for (const CpuSet& cpus : seen) EXPECT_EQ(cpus, one);
    EXPECT_EQ(here(), before);
  });
}

// A host op that a device requests, with its completion.
struct Asked {
  std::vector<float> data = std::vector<float>(8, 1.0f);
  std::promise<Error> ended;

  HostOp op(Collective kind) {
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    request.kind = kind;
    return {request, {}, request.output, nullptr};
  }
  HostOp message(int peer, bool sends, int tag = 0) {
    HostOp out = op(Collective::kPointToPoint);
    out.request.reduce_op = ReduceOp::kNone;
    out.request.envelope = Envelope{peer, tag, sends, Envelope::TagSpace::kDeviceCaller};
    if (sends) std::swap(out.input, out.output);
    return out;
  }
  std::function<void(Error)> when_ended() {
    return [this](const Error& error) { ended.set_value(error); };
  }
};

TEST(DeviceGroup, OpsOnTheHostAreApartFromTheGroups) {
  Ranks ranks(ranks_of(3));
  ranks.run([&](int rank) {
    const auto group = group_of(ranks[rank]);
    if (rank == 0) {
      EXPECT_FALSE(host_op(ranks[0]));  // the other ranks call it later
    }
    Asked asked;
    ASSERT_FALSE(group->run_on_host(asked.op(Collective::kAllreduce), asked.when_ended()));
    if (rank != 0) {
      EXPECT_FALSE(host_op(ranks[rank]));
    }
    expect_exchanged(*group, {0, 1, 2});
    EXPECT_FALSE(asked.ended.get_future().get());
    EXPECT_EQ(asked.data[7], 3.0f);
    EXPECT_EQ(ranks[rank].sequence_number(), 1u);
  });
}

// Rank 2 takes no part. The caller's receive with the same tag was posted first.
TEST(DeviceGroup, MessagesOnTheHostMeetNoCallers) {
  Ranks ranks(ranks_of(3));
  ranks.run([&](int rank) {
    if (rank == 2) return;
    const auto group = group_of(ranks[rank]);
    Asked callers, devices;
    std::ranges::fill(devices.data, static_cast<float>(10 + rank));
    const HostOp message = callers.message(1 - rank, /*sends=*/rank == 0);
    OpRequest request;
    static_cast<OpSpec&>(request) = message.request;
    request.envelope->origin = Envelope::TagSpace::kCaller;
    request.input = message.input;
    request.output = message.output;
    std::shared_ptr<Op> received;
    if (rank == 1) received = ranks[1].submit(request, false).value();
    ASSERT_FALSE(group->run_on_host(devices.message(1 - rank, rank == 0), devices.when_ended()));
    EXPECT_FALSE(devices.ended.get_future().get());
    EXPECT_EQ(devices.data[7], 10.0f);
    if (rank == 0) {
      EXPECT_FALSE(run_op(ranks[0], request));
    } else {
      EXPECT_FALSE(wait_op(ranks[1], *received));
      EXPECT_EQ(callers.data[7], 1.0f);
    }
  });
}

TEST(DeviceGroup, AnOpOnTheHostEndsWithTheGroup) {
  Ranks ranks(ranks_of(2));
  ranks.run([&](int rank) {
    const auto group = group_of(ranks[rank]);
    expect_exchanged(*group, {0, 1});
    if (rank == 1) return;
    Asked asked;
    ASSERT_FALSE(group->run_on_host(asked.op(Collective::kAllreduce), asked.when_ended()));
    ranks[0].abort("for a test");
    EXPECT_TRUE(says(asked.ended.get_future().get(), "for a test"));
    Asked late;
    EXPECT_TRUE(group->run_on_host(late.op(Collective::kAllreduce), late.when_ended()));
  });
}

// A device op that needs the host is still in flight when its group is closed or dropped.
TEST(DeviceGroup, OpsOnTheHostAreServedUntilTheEnd) {
  DeviceRanks ranks(ranks_of(2));
  std::vector<RunnerDelegate*> groups(2);
  ranks.ranks().run([&](int rank) {
    FakeDevice& device = ranks.device(rank);
    device.prepare = [&](RunnerDelegate& group, const OpSpec&, TimePoint) {
      groups[static_cast<size_t>(rank)] = &group;
      return Error();
    };
    std::vector<float> data(16, 1.0f);
    ASSERT_TRUE(ranks[rank].submit(on_device(data), false).ok());
    Asked asked;
    std::thread later([&] {
      std::this_thread::sleep_for(Milliseconds(100));
      EXPECT_FALSE(groups[static_cast<size_t>(rank)]->run_on_host(asked.op(Collective::kAllreduce),
                                                                  asked.when_ended()));
      const Error error = asked.ended.get_future().get();
      EXPECT_FALSE(error) << text_of(error);
      device.end(0);
    });
    ranks[rank].close();
    later.join();
    EXPECT_EQ(asked.data[7], 2.0f);
  });
}

}  // namespace
}  // namespace ringdist::test
