// Model-checks DekkerWord in every order, and tests the model checker itself on standard litmus
// tests.
#include "base/dekker_word.h"

#include <gtest/gtest.h>

#include "support/checked/explore.h"

namespace ringdist {
namespace {

using checked::Atomic;
using checked::cpp_model;
using checked::expect;
using checked::explore;
using checked::FakeDoorbell;
using checked::Outcome;
using checked::Plain;
using checked::tso_model;

template <std::memory_order store, std::memory_order load>
struct Weaker {
  static constexpr std::memory_order kStore = store;
  static constexpr std::memory_order kLoad = load;
};
using ReleaseOnly = Weaker<std::memory_order_release, std::memory_order_seq_cst>;
using AcquireOnly = Weaker<std::memory_order_seq_cst, std::memory_order_acquire>;
using Relaxed = Weaker<std::memory_order_relaxed, std::memory_order_relaxed>;

// One thread waits for work of the other, and sleeps if there is none.
template <typename WorkOrders, typename SleepOrders>
Outcome sleeper_and_bringer(std::unique_ptr<checked::Model> (*model)(int)) {
  DekkerWord<bool, WorkOrders, Atomic> work;
  DekkerWord<bool, SleepOrders, Atomic> asleep;
  FakeDoorbell doorbell;
  const auto sleeper = [&] {
    if (asleep.prepare_sleep(true, [&] { return work.load(); })) doorbell.wait();
    asleep.store_relaxed(false);
  };
  const auto bringer = [&] {
    work.store(true);
    if (asleep.load()) doorbell.ring();
  };
  return explore({{sleeper, bringer}, {{&work, "work"}, {&asleep, "asleep"}, {&doorbell, "bell"}}},
                 model);
}

bool is_lost(const Outcome& outcome) { return outcome.wrong.starts_with("all wait"); }

TEST(DekkerWord, LosesNoWakeUp) {
  for (const auto model : {tso_model, cpp_model}) {
    const Outcome outcome = sleeper_and_bringer<SeqCstOrders, SeqCstOrders>(model);
    EXPECT_EQ(outcome.wrong, "");
    EXPECT_GE(outcome.executions, 10);
    std::printf("%s: %zu states, %g executions\n", model == tso_model ? "x86" : "C++",
                outcome.states, outcome.executions);
  }
}

TEST(DekkerWord, LosesOneIfEitherShowsTooLate) {
  for (const auto model : {tso_model, cpp_model}) {
    EXPECT_TRUE(is_lost(sleeper_and_bringer<ReleaseOnly, SeqCstOrders>(model)));
    EXPECT_TRUE(is_lost(sleeper_and_bringer<SeqCstOrders, ReleaseOnly>(model)));
  }
}

// The reordering below does not exist on x86, only on weaker processors.
TEST(DekkerWord, LosesOneIfEitherLooksTooEarly) {
  EXPECT_TRUE(is_lost(sleeper_and_bringer<AcquireOnly, SeqCstOrders>(cpp_model)));
  EXPECT_TRUE(is_lost(sleeper_and_bringer<SeqCstOrders, AcquireOnly>(cpp_model)));
  EXPECT_EQ((sleeper_and_bringer<AcquireOnly, AcquireOnly>(tso_model).wrong), "");
}

template <typename Orders>
Outcome hand_over() {
  Plain data;
  DekkerWord<bool, Orders, Atomic> there;
  return explore({{[&] {
                     data.write(7);
                     there.store(true);
                   },
                   [&] {
                     if (there.load()) expect(data.read() == 7, "other data");
                   }},
                  {{&data, "data"}, {&there, "there"}}},
                 cpp_model);
}

TEST(DekkerWord, BringsWhatWasWrittenBefore) {
  EXPECT_EQ(hand_over<SeqCstOrders>().wrong, "");
  using ReleaseAcquire = Weaker<std::memory_order_release, std::memory_order_acquire>;
  EXPECT_EQ(hand_over<ReleaseAcquire>().wrong, "");
  EXPECT_TRUE(hand_over<Relaxed>().wrong.starts_with("a race"));
  using RelaxedShow = Weaker<std::memory_order_relaxed, std::memory_order_acquire>;
  EXPECT_TRUE(hand_over<RelaxedShow>().wrong.starts_with("a race"));
  using RelaxedLook = Weaker<std::memory_order_release, std::memory_order_relaxed>;
  EXPECT_TRUE(hand_over<RelaxedLook>().wrong.starts_with("a race"));
}

// ---- the model checker -------------------------------------------------------------------------

constexpr auto kSeqCst = std::memory_order_seq_cst;
constexpr auto kRelaxed = std::memory_order_relaxed;

// Store-buffering litmus test. Returns true if both threads, which store to one variable and load
// the other, can miss the other's store.
bool both_may_miss(std::memory_order stores, std::memory_order loads,
                   std::unique_ptr<checked::Model> (*model)(int)) {
  Atomic<int> a;
  Atomic<int> b;
  Atomic<int> first;  // value that the first thread loaded, plus 1
  const Outcome outcome = explore({{[&] {
                                      a.store(1, stores);
                                      first.store(b.load(loads) + 1, kSeqCst);
                                    },
                                    [&] {
                                      b.store(1, stores);
                                      const int loaded = a.load(loads);
                                      expect(loaded != 0 || first.load(kSeqCst) != 1, "missed");
                                    }},
                                   {}},
                                  model);
  return !outcome.wrong.empty();
}

TEST(CheckedMemory, StoresAreBuffered) {
  EXPECT_FALSE(both_may_miss(kSeqCst, kSeqCst, cpp_model));
  EXPECT_FALSE(both_may_miss(kSeqCst, kRelaxed, tso_model));
  EXPECT_TRUE(both_may_miss(std::memory_order_release, kSeqCst, tso_model));
  EXPECT_TRUE(both_may_miss(std::memory_order_release, std::memory_order_acquire, cpp_model));
}

TEST(CheckedMemory, AThreadSeesItsOwnStoresAndNothingOlderThanItHasSeen) {
  for (const auto model : {tso_model, cpp_model}) {
    Atomic<int> a;
    const auto counts = [&] {
      a.store(1, kRelaxed);
      expect(a.load(kRelaxed) == 1, "its own store is not there");
      a.store(2, kRelaxed);
    };
    const auto watches = [&] {
      const int before = a.load(kRelaxed);
      expect(a.load(kRelaxed) >= before, "the older after the newer");
    };
    EXPECT_EQ(explore({{counts, watches, watches}, {}}, model).wrong, "");
  }
}

// Message-passing litmus test: loads of two places may be reordered unless the first acquires. On
// x86 they stay in order.
TEST(CheckedMemory, LoadsAreReordered) {
  Atomic<int> a;
  Atomic<int> b;
  const auto program = [&](std::memory_order store, std::memory_order load) {
    return checked::Program{{[&a, &b, store] {
                               a.store(1, kRelaxed);
                               b.store(1, store);
                             },
                             [&a, &b, load] {
                               if (b.load(load) == 1) expect(a.load(kRelaxed) == 1, "an old value");
                             }},
                            {}};
  };
  const auto release = std::memory_order_release;
  const auto acquire = std::memory_order_acquire;
  EXPECT_EQ(explore(program(release, acquire), cpp_model).wrong, "");
  EXPECT_NE(explore(program(release, kRelaxed), cpp_model).wrong, "");
  EXPECT_NE(explore(program(kRelaxed, acquire), cpp_model).wrong, "");
  EXPECT_EQ(explore(program(kRelaxed, kRelaxed), tso_model).wrong, "");
}

// Two readers of two independent stores agree on their order only if everything is sequentially
// consistent.
TEST(CheckedMemory, WatchersNeedNotAgree) {
  const auto disagree = [](std::memory_order store, std::memory_order load) {
    Atomic<int> a;
    Atomic<int> b;
    Atomic<int> seen;  // a before b
    return explore({{[&] { a.store(1, store); }, [&] { b.store(1, store); },
                     [&] {
                       const int first = a.load(load);
                       seen.store(first == 1 && b.load(load) == 0 ? 1 : 0, kSeqCst);
                     },
                     [&] {
                       const int first = b.load(load);
                       if (first == 1 && a.load(load) == 0)
                         expect(seen.load(kSeqCst) == 0, "they disagree");
                     }},
                    {}},
                   cpp_model)
        .wrong;
  };
  EXPECT_EQ(disagree(kSeqCst, kSeqCst), "");
  EXPECT_NE(disagree(std::memory_order_release, std::memory_order_acquire), "");
}

// Two independent threads with 3 actions each have 20 interleavings.
TEST(CheckedMemory, CountsEveryOrder) {
  Plain a;
  Plain b;
  const auto three = [](Plain& mine) {
    return [&mine] {
      for (uint64_t i = 0; i < 3; ++i) mine.write(i);
    };
  };
  const Outcome outcome = explore({{three(a), three(b)}, {}}, cpp_model);
  EXPECT_EQ(outcome.wrong, "");
  EXPECT_EQ(outcome.executions, 20);
  EXPECT_EQ(outcome.states, 16u);
}

TEST(CheckedMemory, SaysWhatLedToWhatIsWrong) {
  Plain a;
  const Outcome outcome =
      explore({{[&] { a.write(3); }, [&] { a.read(); }}, {{&a, "the data"}}}, cpp_model);
  EXPECT_EQ(outcome.wrong,
            "a race: it reads what may not be written yet, after\n"
            "  thread 0 writes the data = 3\n"
            "  thread 1 reads the data");
}

}  // namespace
}  // namespace ringdist
