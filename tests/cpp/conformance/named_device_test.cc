// Calls by name on devices, over each device path. The calls come in a different order on each
// rank, next to calls on host tensors, fused, with joined ranks, and with a device that refuses.
// The devices are fakes, as in cuda_path_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "negotiation/named_ranks.h"
#include "support/fake_devices.h"

namespace ringdist {
namespace {

using Floats = std::vector<float>;

class NamedOnDevice : public testing::TestWithParam<FakeDevices::By> {
 protected:
  RanksOptions options(int size, uint64_t seed) {
    RanksOptions out = delayed(size, seed);
    out.make_runner = [this](int) { return devices_.maker(GetParam()); };
    return out;
  }

  NamedCall sum_on_device(const std::string& name, Floats& data) {
    CallContent content;
    content.reduce_op = ReduceOp::kSum;
    content.tensors = {{DType::kFloat32, {static_cast<int64_t>(data.size())}}};
    content.where = "cuda";
    return {
        name, "allreduce", content.describe(), {}, [this, &data](const ExtrasByRank&) {
          return only(devices_.on_device(allreduce_request(data, DType::kFloat32, ReduceOp::kSum)));
        }};
  }
  FillOnDevice filler() {
    return [this](int64_t count, size_t width, const ElementBytes& value) -> Result<FilledMemory> {
      auto memory = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(count) * width);
      for (size_t at = 0; at < memory->size(); at += width)
        std::memcpy(memory->data() + at, value.data(), width);
      return FilledMemory{memory->data(), memory, DeviceStream{0, devices_.streams.make()}};
    };
  }

  FakeDevices devices_;
};

TEST_P(NamedOnDevice, RunsInOneOrderBesideCallsOfTheHost) {
  constexpr int kNames = 24;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int size = 2 + static_cast<int>(seed % 2);
    NegotiatorOptions negotiator;
    negotiator.fusion_bytes = static_cast<int64_t>(1) << (seed % 3 * 8);  // 1: no fusion
    NamedRanks ranks(options(size, seed), negotiator);
    ranks.run([&](int rank) {
      std::mt19937_64 random(seed * 100 + static_cast<uint64_t>(rank));
      std::vector<int> order(kNames);
      std::iota(order.begin(), order.end(), 0);
      for (int round = 0; round < 2; ++round) {
        std::ranges::shuffle(order, random);
        std::vector<Floats> data(kNames);
        std::vector<std::shared_ptr<Op>> ends(kNames);
        for (const int i : order) {
          data[i].assign(1 + i % 5, static_cast<float>(i + rank));
          NamedCall call =
              i % 3 == 0 ? sum_of(name_of(i), data[i]) : sum_on_device(name_of(i), data[i]);
          ends[i] = ranks[rank].call(std::move(call), false).value();
        }
        for (int i = 0; i < kNames; ++i) {
          const Error error = ranks.wait(rank, name_of(i), *ends[i]);
          ASSERT_FALSE(error) << error.what();
          const auto sum = static_cast<float>(size * i + size * (size - 1) / 2);
          for (const float x : data[i]) ASSERT_EQ(x, sum) << name_of(i);
        }
      }
      ranks.close(rank);
    });
  }
}

TEST_P(NamedOnDevice, GoesOnWithoutThoseThatHaveJoined) {
  NamedRanks ranks(options(3, 5));
  ranks.run([&](int rank) {
    for (int round = 0; round < 1 + rank; ++round) {
      Floats first(3, 1.0f), second(40, 1.0f);
      const auto end = ranks[rank].call(sum_on_device("first", first), false).value();
      const auto other = ranks[rank].call(sum_on_device("second", second), false).value();
      for (const Error& error :
           {ranks.wait(rank, "first", *end), ranks.wait(rank, "second", *other)})
        ASSERT_FALSE(error) << error.what();
      EXPECT_EQ(first[2], static_cast<float>(3 - round));
      EXPECT_EQ(second[39], static_cast<float>(3 - round));
    }
    auto join = ranks[rank].join(filler());
    ASSERT_TRUE(join.ok());
    EXPECT_TRUE(ranks[rank].wait(*join.value().end, std::nullopt));
    EXPECT_FALSE(join.value().end->error());
    ranks.close(rank);
  });
}

TEST_P(NamedOnDevice, TellsCallsOfTheHostApart) {
  NamedRanks ranks(options(2, 1));
  ranks.run([&](int rank) {
    Floats data(3, 1.0f);
    const Error error = ranks.call(rank, rank == 0 ? sum_of("x", data) : sum_on_device("x", data));
    ASSERT_EQ(error.kind(), ErrorKind::kMismatch);
    for (const char* word : {"on cpu", "on cuda"})
      EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
    EXPECT_FALSE(ranks.call(rank, sum_on_device("y", data)));
    EXPECT_EQ(data[0], 2.0f);
    ranks.close(rank);
  });
}

TEST_P(NamedOnDevice, ARankWithoutADeviceEndsTheGroup) {
  NamedRanks ranks(options(2, 1));
  ranks.run([&](int rank) {
    Floats data(3, 1.0f);
    if (rank == 0) {
      auto join = ranks[rank].join();
      EXPECT_TRUE(ranks[rank].wait(*join.value().end, std::nullopt));
      EXPECT_NE(join.value().end->error().message().find("joined without a device"),
                std::string::npos)
          << join.value().end->error().message();
      return;
    }
    const Error error = ranks.call(rank, sum_on_device("x", data));
    ASSERT_TRUE(error);
    EXPECT_NE(error.message().find("joined without a device"), std::string::npos)
        << error.message();
  });
}

// Without a device runner, no runner is called.
TEST(NamedWithoutDevices, ACallIsRefusedAndTheGroupGoesOn) {
  NamedRanks ranks(delayed(2, 1));
  ranks.run([&](int rank) {
    Floats data(3, 1.0f);
    NamedCall call = sum_of("x", data);
    call.requests = [&](const ExtrasByRank&) {
      OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
      request.device_stream = DeviceStream{};
      return only(std::move(request));
    };
    const Error error = ranks.call(rank, call);
    ASSERT_TRUE(error);
    EXPECT_EQ(error.kind(), ErrorKind::kNotSupported) << error.what();
    EXPECT_FALSE(ranks.call(rank, sum_of("y", data)));
    EXPECT_EQ(data[0], 2.0f);
    ranks.close(rank);
  });
}

INSTANTIATE_TEST_SUITE_P(Ways, NamedOnDevice,
                         testing::Values(FakeDevices::By::kNccl, FakeDevices::By::kHost),
                         [](const testing::TestParamInfo<FakeDevices::By>& by) {
                           return by.param == FakeDevices::By::kNccl ? "Nccl" : "Host";
                         });

}  // namespace
}  // namespace ringdist
