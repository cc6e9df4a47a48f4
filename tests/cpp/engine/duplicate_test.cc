// Duplicates: groups of the same ranks that belong to another group, with their own names.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "support/hooked_store.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

using Group = std::vector<std::shared_ptr<Communicator>>;

std::shared_ptr<Communicator> duplicate_of(Communicator& group, const std::string& suffix) {
  auto made = group.duplicate(suffix);
  EXPECT_TRUE(made.ok()) << made.error().what();
  return made.value();
}

// Returns options where all ranks but the first read nothing from the store before `open` is set.
// The group cannot form before that.
RanksOptions with_a_store_that_opens(std::shared_future<void> open) {
  RanksOptions out;
  out.store = [open = std::move(open)](int rank,
                                       std::shared_ptr<Store> store) -> std::shared_ptr<Store> {
    if (rank == 0) return store;
    return std::make_shared<HookedStore>(std::move(store), [open](std::string_view operation) {
      if (operation != "add" && operation != "set") open.wait();
    });
  };
  return out;
}

float sum(Communicator& group, float value) {
  std::vector<float> data(10, value);
  const Error error = run_op(group, allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
  EXPECT_FALSE(error) << error.what();
  return data[9];
}

TEST(Duplicate, MeetsThoseOfItsNameWhateverTheOrder) {
  Ranks ranks({});
  ranks.run([&](int rank) {
    std::map<std::string, std::shared_ptr<Communicator>> made;
    for (const char* suffix : {rank == 0 ? "/a" : "/b", rank == 0 ? "/b" : "/a"})
      made[suffix] = duplicate_of(ranks[rank], suffix);
    EXPECT_EQ(sum(*made["/a"], 1.0f), 2.0f);
    EXPECT_EQ(sum(*made["/b"], 10.0f), 20.0f);
  });
}

TEST(Duplicate, OfTheSameNameAreSeveralInTheirOrder) {
  Ranks ranks({});
  ranks.run([&](int rank) {
    const auto first = duplicate_of(ranks[rank], "/a");
    const auto second = duplicate_of(ranks[rank], "/a");
    const bool swapped = rank == 0;
    const auto op_of = [](Communicator& group, std::vector<float>& data) {
      return group.submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false).value();
    };
    std::vector<float> one(10, 1.0f);
    std::vector<float> ten(10, 10.0f);
    const auto later = swapped ? op_of(*first, one) : op_of(*second, ten);
    const auto last = swapped ? op_of(*second, ten) : op_of(*first, one);
    EXPECT_FALSE(wait_op(*first, *later));
    EXPECT_FALSE(wait_op(*second, *last));
    EXPECT_EQ(one[9], 2.0f);
    EXPECT_EQ(ten[9], 20.0f);
  });
}

// The first messages arrive when only one rank has created the duplicate.
TEST(Duplicate, MayBeMadeLate) {
  Ranks ranks({});
  ranks.run([&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(Milliseconds(300));
    EXPECT_EQ(sum(*duplicate_of(ranks[rank], "/a"), 1.0f), 2.0f);
  });
}

TEST(Duplicate, NeedsNoStore) {
  const auto departed = std::make_shared<std::atomic<bool>>(false);
  RanksOptions options;
  options.size = 3;
  options.store = [departed](int, std::shared_ptr<Store> store) -> std::shared_ptr<Store> {
    return std::make_shared<HookedStore>(std::move(store), [departed](std::string_view operation) {
      EXPECT_FALSE(*departed) << operation;
    });
  };
  Ranks ranks(std::move(options));
  ranks.run([&](int rank) { EXPECT_EQ(sum(ranks[rank], 1.0f), 3.0f); });  // all have met
  *departed = true;
  ranks.run([&](int rank) { EXPECT_EQ(sum(*duplicate_of(ranks[rank], "/a"), 1.0f), 3.0f); });
  *departed = false;  // a rank that ends may write to the store
}

// The duplicate is created, and its first op is called, before its group has found its members.
TEST(Duplicate, WaitsForItsGroup) {
  std::promise<void> opened;
  Ranks ranks(with_a_store_that_opens(opened.get_future().share()));
  ranks.run([&](int rank) {
    const auto duplicate = duplicate_of(ranks[rank], "/a");
    std::vector<float> data(10, 1.0f);
    const auto op =
        duplicate->submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false).value();
    if (rank == 1) opened.set_value();
    EXPECT_FALSE(wait_op(*duplicate, *op));
    EXPECT_EQ(data[9], 2.0f);
  });
}

// One rank drops the duplicate before the group has found its members. It must still continue
// until the duplicate is named, or the other rank would get no notice.
TEST(Duplicate, OneThatEndsBeforeItsGroupIsThereIsMissedByName) {
  std::promise<void> opened;
  Ranks ranks(with_a_store_that_opens(opened.get_future().share()));
  const auto ours = duplicate_of(ranks[0], "/a");
  const auto theirs = duplicate_of(ranks[1], "/a");
  std::vector<float> data(10, 1.0f);
  const auto op =
      ours->submit(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), false).value();
  theirs->close();
  opened.set_value();
  const Error error = wait_op(*ours, *op);
  EXPECT_NE((error ? error.message() : "").find("rank 1"), std::string::npos) << error.message();
  EXPECT_NE((error ? error.message() : "").find("has left the group"), std::string::npos)
      << error.message();
  ranks.run([&](int rank) {
    EXPECT_EQ(sum(ranks[rank], 1.0f), 2.0f);
  });  // the group itself is not affected
}

TEST(Duplicate, EndsWithItsGroup) {
  Ranks ranks({});
  ranks.run([&](int rank) {
    const auto duplicate = duplicate_of(ranks[rank], "/a");
    EXPECT_EQ(sum(*duplicate, 1.0f), 2.0f);
    if (rank == 0) return ranks[0].abort("for a test");
    std::vector<float> data(10, 1.0f);
    const Error error =
        run_op(*duplicate, allreduce_request(data, DType::kFloat32, ReduceOp::kSum));
    EXPECT_NE((error ? error.message() : "").find("for a test"), std::string::npos);
  });
}

}  // namespace
}  // namespace ringdist
