// Groups that are split, with everything real but the devices. On the NCCL path the NCCL
// communicators are split, too; the other path goes by way of the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/store.h"
#include "support/fake_devices.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

using Ints = std::vector<int32_t>;
using Group = std::shared_ptr<Communicator>;

class CudaSplit : public testing::TestWithParam<FakeDevices::By> {
 protected:
  static constexpr int kSize = 4;

  RanksOptions options() {
    RanksOptions out;
    out.size = kSize;
    out.make_runner = [this](int) { return devices_.maker(GetParam()); };
    return out;
  }
  bool by_nccl() const { return GetParam() == FakeDevices::By::kNccl; }

  // Returns the sum of all rank numbers, or the error.
  Result<int32_t> try_sum(Communicator& group, int rank) {
    const auto value = std::make_shared<Ints>(1, rank);
    OpRequest asked = int_request(Collective::kAllreduce, 1, nullptr, value.get());
    asked.keep_alive = value;  // a device may use it after the op has ended
    const Error error = run_op(group, devices_.on_device(std::move(asked)));
    if (error) return error;
    return (*value)[0];
  }
  int32_t sum(Communicator& group, int rank) {
    const auto out = try_sum(group, rank);
    EXPECT_TRUE(out.ok()) << out.error().what();
    return out.ok() ? out.value() : -1;
  }
  static Group split(Ranks& ranks, int rank, const std::vector<int>& part) {
    const std::string name = "part of " + std::to_string(part[0]);
    const auto store = std::make_shared<PrefixStore>(ranks.store(), name);
    auto made = ranks[rank].subgroup(part, store, name, Milliseconds(20000));
    EXPECT_TRUE(made.ok()) << made.error().what();
    return made.value();
  }

  FakeDevices devices_;
};

TEST_P(CudaSplit, EachPartGoesOnByItself) {
  Ranks ranks(options());
  ranks.run([&](int rank) {
    EXPECT_EQ(sum(ranks[rank], rank), 6);
    const std::vector<int> part = rank % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    const Group group = split(ranks, rank, part);
    EXPECT_EQ(sum(*group, rank), part[0] + part[1]);
    EXPECT_EQ(sum(ranks[rank], rank), 6) << "its parent, too";
    EXPECT_EQ(sum(*group, rank), part[0] + part[1]);
    group->close();
    EXPECT_EQ(sum(ranks[rank], rank), 6);
  });
  EXPECT_EQ(devices_.nccl.calls("split"), by_nccl() ? kSize : 0);
  if (by_nccl()) {
    EXPECT_EQ(devices_.nccl.calls("init_rank"), kSize);
  }
}

TEST_P(CudaSplit, ARankMayBeInNoPart) {
  Ranks ranks(options());
  ranks.run([&](int rank) {
    EXPECT_EQ(sum(ranks[rank], rank), 6);
    const Group group = split(ranks, rank, {1, 2});
    EXPECT_EQ(group == nullptr, rank == 0 || rank == 3);
    if (group) {
      EXPECT_EQ(sum(*group, rank), 3);
    }
    EXPECT_EQ(sum(ranks[rank], rank), 6);
  });
}

// In such a group, ranks outside the subgroup do not take part in the split.
TEST_P(CudaSplit, AGroupThatHasUsedNoDeviceIsSplitByItsPartsAlone) {
  Ranks ranks(options());
  ranks.run([&](int rank) {
    if (rank == 0) return;
    const Group group = split(ranks, rank, {1, 2, 3});
    EXPECT_EQ(sum(*group, rank), 6);
  });
  EXPECT_EQ(devices_.nccl.calls("split"), 0);
}

TEST_P(CudaSplit, APartOutlivesItsParent) {
  Ranks ranks(options());
  std::vector<Group> parts(kSize);
  ranks.run([&](int rank) {
    EXPECT_EQ(sum(ranks[rank], rank), 6);
    parts[static_cast<size_t>(rank)] =
        split(ranks, rank, rank < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
  });
  ranks[3].abort("for a test");
  ranks.run([&](int rank) {
    EXPECT_FALSE(try_sum(ranks[rank], rank).ok());
    EXPECT_EQ(sum(*parts[static_cast<size_t>(rank)], rank), rank < 2 ? 1 : 5);
  });
}

TEST_P(CudaSplit, ARankWhoseSplitFailsIsNamedToAll) {
  if (!by_nccl()) GTEST_SKIP() << "by way of the host nothing is split";
  Ranks ranks(options());
  ranks.run([&](int rank) { EXPECT_EQ(sum(ranks[rank], rank), 6); });
  devices_.nccl.fail_next("split", gpu::NcclResult::kSystemError);
  ranks.run([&](int rank) {
    const auto made =
        ranks[rank].subgroup({0, 1, 2, 3}, ranks.store(), "part", Milliseconds(20000));
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().kind(), ErrorKind::kTimeout);
    EXPECT_NE(made.error().message().find("ncclCommSplit for 4 ranks: NCCL's error 2"),
              std::string::npos)
        << made.error().what();
  });
  const auto others = ranks.another("afterwards");
  ranks.run([&](int rank) { EXPECT_EQ(sum(*others[static_cast<size_t>(rank)], rank), 6); });
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaSplit,
                         testing::Values(FakeDevices::By::kNccl, FakeDevices::By::kHost),
                         [](const auto& tested) {
                           return tested.param == FakeDevices::By::kNccl ? "Nccl" : "Host";
                         });

}  // namespace
}  // namespace ringdist
