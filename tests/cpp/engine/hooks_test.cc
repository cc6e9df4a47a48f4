// Hooks: order and number of their calls, and their calls by the engine.
#include "engine/hooks.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "support/ranks.h"

namespace ringdist {
namespace {

TEST(HookTable, CallsWhatWasAddedUntilItIsRemoved) {
  HookTable<int> table;
  std::vector<int> seen;
  EXPECT_TRUE(table.empty());
  table.add(1, [&](int value) { seen.push_back(value); });
  table.add(2, [&](int value) { seen.push_back(10 * value); });
  EXPECT_FALSE(table.empty());
  table.call(3);
  table.add(1, [&](int value) { seen.push_back(-value); });  // replaces the first hook
  table.remove(7);                                           // no such hook
  table.call(4);
  table.remove(1);
  table.remove(2);
  EXPECT_TRUE(table.empty());
  table.call(5);
  std::ranges::sort(seen);
  EXPECT_EQ(seen, (std::vector{-4, 3, 30, 40}));
}

TEST(HookTable, AHookMayRemoveItselfAndAddOthers) {
  HookTable<> table;
  std::string calls;
  for (const int id : {1, 2}) {
    // The text is on the heap, because the state of a hook must outlive the hook's own removal.
    auto text = std::make_shared<std::string>("hook " + std::to_string(id) + ", on its own; ");
    table.add(id, [&table, &calls, id, text = std::move(text)] {
      table.remove(1);
      table.remove(2);
      table.add(10 + id, [&calls] { calls += "later; "; });
      calls += *text;
    });
  }
  table.call();
  EXPECT_EQ(calls, "hook 1, on its own; hook 2, on its own; ");
  table.call();
  EXPECT_EQ(calls, "hook 1, on its own; hook 2, on its own; later; later; ");
}

TEST(HookTable, AnExceptionEndsInItsHook) {
  HookTable<> table;
  int calls = 0;
  table.add(1, [] { throw std::runtime_error("for a test"); });
  table.add(2, [] { throw 7; });
  table.add(3, [&] { ++calls; });
  table.call();
  EXPECT_EQ(calls, 1);
}

TEST(Hooks, ForFailureAreCalledOnceAndAllWaitForThem) {
  Hooks hooks;
  std::atomic<int> calls{0};
  std::promise<void> begun;
  hooks.failed.add(1, [&] {
    begun.set_value();
    std::this_thread::sleep_for(Milliseconds(50));
    hooks.call_failed();  // called by a hook itself, without a deadlock
    ++calls;
  });
  std::thread first([&] { hooks.call_failed(); });
  begun.get_future().wait();
  hooks.call_failed();
  EXPECT_EQ(calls, 1) << "it did not wait";
  first.join();
  hooks.call_failed();
  EXPECT_EQ(calls, 1);
}

TEST(Hooks, AreNotCalledAfterTheEndWhichWaitsForThoseThatRun) {
  Hooks hooks;
  std::atomic<int> calls{0};
  std::promise<void> begun;
  hooks.failed.add(1, [&] {
    begun.set_value();
    std::this_thread::sleep_for(Milliseconds(50));
    ++calls;
  });
  std::thread first([&] { hooks.call_failed(); });
  begun.get_future().wait();
  hooks.end(/*waits=*/false);
  EXPECT_EQ(calls, 0);
  hooks.end(/*waits=*/true);
  EXPECT_EQ(calls, 1);
  first.join();

  Hooks ended;
  ended.failed.add(1, [&] { ++calls; });
  ended.end(/*waits=*/true);
  ended.call_failed();
  EXPECT_EQ(calls, 1);
}

TEST(Completion, IsReportedUnderAKeyOfItsOwnWhenItsPartsHaveArrived) {
  const auto hooks = std::make_shared<Hooks>();
  std::vector<uint64_t> seen;
  Completion silent(hooks, 1);
  EXPECT_FALSE(silent.wanted());
  silent.arrive();
  hooks->succeeded.add(1, [&](uint64_t key, float milliseconds) {
    EXPECT_GE(milliseconds, 0);
    seen.push_back(key);
  });
  Completion two(hooks, 2);
  Completion one(hooks, 1);
  EXPECT_TRUE(one.wanted());
  two.arrive();
  one.arrive();
  two.arrive();
  EXPECT_EQ(seen, (std::vector{one.key(), two.key()}));
  EXPECT_NE(one.key(), two.key());
  EXPECT_NE(one.key(), silent.key());
}

TEST(Completion, KnowsHowLongItTook) {
  Completion call(std::make_shared<Hooks>(), 1);
  std::this_thread::sleep_for(Milliseconds(2));
  const float open = call.milliseconds();
  EXPECT_GE(open, 2);
  call.arrive();
  const float took = call.milliseconds();
  EXPECT_GE(took, open);
  std::this_thread::sleep_for(Milliseconds(2));
  EXPECT_EQ(call.milliseconds(), took);
}

TEST(Hooks, TheEngineTellsOfSuccess) {
  Ranks ranks({});
  std::vector<std::atomic<bool>> told(ranks.size());
  ranks.run([&](int rank) {
    std::vector<float> data(1000, 1.0f);
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    request.on_end = [&told, rank](const Error& error) { told[rank] = !error; };
    const Error error = run_op(ranks[rank], std::move(request));
    EXPECT_FALSE(error) << error.what();
  });
  // The thread that runs the lane may still be between two hooks.
  for (const auto& one : told)
    for (int i = 0; i < 500 && !one; ++i) std::this_thread::sleep_for(Milliseconds(10));
  for (const auto& one : told) EXPECT_TRUE(one);
}

TEST(Hooks, TheEngineTellsOfFailureOnEveryRankAndOfNoSuccess) {
  Ranks ranks({});
  std::vector<std::promise<void>> failed(ranks.size());
  std::atomic<bool> succeeded{false};
  for (int rank = 0; rank < ranks.size(); ++rank)
    ranks[rank].hooks()->failed.add(1, [&, rank] {
      EXPECT_TRUE(ranks[rank].failure());
      failed[rank].set_value();
    });
  ranks.run([&](int rank) {
    std::vector<float> data(rank == 0 ? 10 : 11, 1.0f);
    OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
    request.on_end = [&](const Error& error) { succeeded = !error; };
    (void)run_op(ranks[rank], std::move(request));
  });
  for (auto& one : failed)
    EXPECT_EQ(one.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_FALSE(succeeded);
}

TEST(Hooks, AGroupThatEndsAsItShouldHasNotFailed) {
  std::atomic<int> calls{0};
  {
    Ranks ranks({});
    for (int rank = 0; rank < ranks.size(); ++rank)
      ranks[rank].hooks()->failed.add(1, [&] { ++calls; });
    ranks.run([&](int rank) {
      std::vector<float> data(10, 1.0f);
      EXPECT_FALSE(run_op(ranks[rank], allreduce_request(data, DType::kFloat32, ReduceOp::kSum)));
      ranks[rank].close();
    });
  }
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace ringdist
