// Model check of the two ends of a shared-memory link, with the classes of the product, in every
// order of processes and memory. No message may be lost, read before it is written, or overwritten
// before it is read, and no end may sleep for ever. The tests also show that each of the six
// memory orders is needed.
#include <gtest/gtest.h>

#include <array>

#include "support/checked/explore.h"
#include "transport/shm/ring.h"

namespace ringdist::shm {
namespace {

using checked::cpp_model;
using checked::FakeDoorbell;
using checked::Outcome;
using checked::tso_model;

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSeqCst = std::memory_order_seq_cst;

template <std::memory_order store, std::memory_order load>
struct Orders {
  static constexpr std::memory_order kStore = store;
  static constexpr std::memory_order kLoad = load;
};
using Strong = SeqCstOrders;

// One end of a link, like the classes of the shm transport. The words that it publishes are in its
// own memory.
template <uint64_t slots, typename Published, typename Consumed, typename Asleep>
struct End {
  DekkerWord<uint64_t, Published, checked::Atomic> published;
  DekkerWord<uint64_t, Consumed, checked::Atomic> consumed;
  DekkerWord<SleepState, Asleep, checked::Atomic> sleep;
  std::array<checked::Plain, slots> data;
  FakeDoorbell doorbell;

  // Sends and receives messages. If `sleeps` is false, it returns where it would wait.
  void exchange(End& peer, uint64_t sends, uint64_t gets, bool sleeps) {
    RingWriter<slots> out;
    RingReader<slots> in;
    const auto has_room = [&] { return out.consumed(peer.consumed) != out.reclaimed(); };
    const auto has_message = [&] {
      return in.consumed() < gets && in.has_message(in.published(peer.published));
    };
    while (out.published() < sends || in.consumed() < gets) {
      bool any = false;
      if (has_message()) {
        checked::expect(!in.is_absurd(in.published(peer.published)), "more than the ring holds");
        checked::expect(peer.data[in.slot()].read() == in.consumed() + 1, "another message");
        if (in.consume(consumed, peer.sleep)) peer.doorbell.ring();
        any = true;
      }
      if (out.published() < sends && (!out.full() || reclaim(out, peer))) {
        data[out.slot()].write(out.published() + 1);
        if (out.publish(published, peer.sleep)) peer.doorbell.ring();
        any = true;
      }
      if (any) continue;
      if (!sleeps) return;
      const bool waits = out.published() < sends;
      if (sleep.prepare_sleep(waits ? SleepState::kForRoom : SleepState::kForMessages,
                              [&] { return has_message() || (waits && has_room()); }))
        doorbell.wait();
      sleep.store_relaxed(SleepState::kAwake);
    }
  }
  static bool reclaim(RingWriter<slots>& ring, const End& peer) {
    const uint64_t until = ring.consumed(peer.consumed);
    const bool any = ring.reclaimed() < until;
    while (ring.reclaimed() < until) ring.reclaim();
    return any;
  }
};

// A link that the writer ends after some messages. The reader must read all of them, then the
// writer gets its slots back, and no end may sleep for ever.
template <uint64_t slots, typename Published, typename Consumed, typename Asleep>
struct EndingLink {
  End<slots, Published, Consumed, Asleep> writer;
  End<slots, Published, Consumed, Asleep> reader;

  void write(uint64_t sends) {
    RingWriter<slots> out;
    for (uint64_t i = 0; i < sends; ++i) {
      writer.data[out.slot()].write(i + 1);
      if (out.publish(writer.published, reader.sleep)) reader.doorbell.ring();
    }
    out.end(writer.published);
    reader.doorbell.ring();
    while (!out.reader_has_ended(reader.consumed)) {
      if (writer.sleep.prepare_sleep(SleepState::kForMessages, [] { return false; }))
        writer.doorbell.wait();
      writer.sleep.store_relaxed(SleepState::kAwake);
    }
    checked::expect(out.consumed(reader.consumed) == sends, "not all was read");
    for (auto& slot : writer.data) slot.write(0);
  }
  void read() {
    RingReader<slots> in;
    const auto has_message = [&] { return in.has_message(in.published(writer.published)); };
    while (true) {
      const bool ended = in.writer_has_ended(writer.published);
      while (has_message()) {
        checked::expect(writer.data[in.slot()].read() == in.consumed() + 1, "another message");
        if (in.consume(reader.consumed, writer.sleep)) writer.doorbell.ring();
      }
      if (ended) break;
      if (reader.sleep.prepare_sleep(SleepState::kForMessages, has_message)) reader.doorbell.wait();
      reader.sleep.store_relaxed(SleepState::kAwake);
    }
    in.end(reader.consumed);
    writer.doorbell.ring();
  }
};

using Model = std::unique_ptr<checked::Model> (*)(int);

struct Work {
  uint64_t there;
  uint64_t back = 0;
  bool sleeps = true;
};

template <uint64_t slots, typename Published, typename Consumed, typename Asleep>
Outcome run(Work work, Model model) {
  using ThisEnd = End<slots, Published, Consumed, Asleep>;
  std::array<ThisEnd, 2> ends;
  checked::Program program{{[&] { ends[0].exchange(ends[1], work.there, work.back, work.sleeps); },
                            [&] { ends[1].exchange(ends[0], work.back, work.there, work.sleeps); }},
                           {}};
  for (ThisEnd& end : ends) {
    const std::string its = &end == &ends[0] ? "0's " : "1's ";
    program.names[&end.published] = its + "published";
    program.names[&end.consumed] = its + "consumed";
    program.names[&end.sleep] = its + "sleep";
    program.names[&end.doorbell] = its + "bell";
    for (size_t i = 0; i < slots; ++i)
      program.names[&end.data[i]] = its + "slot " + std::to_string(i);
  }
  return explore(program, model);
}

template <uint64_t slots>
void expect_right(Work work) {
  for (const Model model : {&tso_model, &cpp_model}) {
    const Outcome outcome = run<slots, PublishedOrders, ConsumedOrders, SleepOrders>(work, model);
    EXPECT_EQ(outcome.wrong, "");
    std::printf("%s, rings of %d, %d messages there and %d back: %zu states, %.3g executions\n",
                model == &tso_model ? "x86" : "C++", static_cast<int>(slots),
                static_cast<int>(work.there), static_cast<int>(work.back), outcome.states,
                outcome.executions);
  }
}

TEST(ShmLinkOrders, OneWayIsRightWhateverTheOrder) {
  expect_right<1>({1});
  expect_right<1>({2});
  expect_right<2>({2});
#ifndef RINGDIST_SANITIZED
  expect_right<1>({3});
  expect_right<2>({3});
#endif
}

// One word marks an end as sleeping, whether it waits for messages or for room.
TEST(ShmLinkOrders, BothWaysAreRightWhateverTheOrder) {
  expect_right<1>({1, 1});
#ifndef RINGDIST_SANITIZED
  expect_right<1>({2, 1});
#endif
}

template <uint64_t slots, typename Published, typename Consumed>
std::string wrong_at_the_end(uint64_t sends, Model model) {
  EndingLink<slots, Published, Consumed, SleepOrders> link;
  const checked::Program program{{[&] { link.write(sends); }, [&] { link.read(); }}, {}};
  const Outcome outcome = explore(program, model);
  std::printf("%zu states, %.3g executions\n", outcome.states, outcome.executions);
  return outcome.wrong.substr(0, outcome.wrong.find_first_of(":,"));
}

TEST(ShmLinkOrders, AnEndComesAfterAllMessages) {
  for (const Model model : {&tso_model, &cpp_model}) {
    EXPECT_EQ((wrong_at_the_end<2, PublishedOrders, ConsumedOrders>(0, model)), "");
    EXPECT_EQ((wrong_at_the_end<2, PublishedOrders, ConsumedOrders>(2, model)), "");
  }
  using RelaxedShow = Orders<kRelaxed, kSeqCst>;
  // The end that was woken does not see the reason.
  EXPECT_EQ((wrong_at_the_end<1, RelaxedShow, Strong>(1, cpp_model)), "all wait");
  EXPECT_EQ((wrong_at_the_end<1, Strong, RelaxedShow>(1, cpp_model)), "all wait");
}

// Returns the first failure for a ring of one slot and two messages. So each end may have to wait,
// and the slot is reused.
template <typename Published, typename Consumed, typename Asleep>
std::string first_wrong(Model model, bool sleeps = true) {
  const std::string wrong = run<1, Published, Consumed, Asleep>({2, 0, sleeps}, model).wrong;
  return wrong.substr(0, wrong.find_first_of(":,"));
}

TEST(ShmLinkOrders, ARelaxedCounterIsARace) {
  using RelaxedShow = Orders<kRelaxed, kSeqCst>;
  using RelaxedLook = Orders<kSeqCst, kRelaxed>;
  EXPECT_EQ((first_wrong<Strong, Strong, Strong>(cpp_model, false)), "");
  EXPECT_EQ((first_wrong<RelaxedShow, Strong, Strong>(cpp_model, false)), "a race");
  EXPECT_EQ((first_wrong<Strong, RelaxedShow, Strong>(cpp_model, false)), "a race");
  EXPECT_EQ((first_wrong<RelaxedLook, Strong, Strong>(cpp_model, false)), "a race");
  EXPECT_EQ((first_wrong<Strong, RelaxedLook, Strong>(cpp_model, false)), "a race");
}

// Release and acquire suffice for the data, but not for the doorbell.
TEST(ShmLinkOrders, AnyThatIsNotInOneOrderLosesAWakeUp) {
  using ReleaseShow = Orders<kRelease, kSeqCst>;
  using AcquireLook = Orders<kSeqCst, kAcquire>;
  using ReleaseAcquire = Orders<kRelease, kAcquire>;
  EXPECT_EQ((first_wrong<ReleaseAcquire, ReleaseAcquire, ReleaseAcquire>(cpp_model, false)), "");
  EXPECT_EQ((first_wrong<ReleaseShow, Strong, Strong>(cpp_model)), "all wait");
  EXPECT_EQ((first_wrong<Strong, ReleaseShow, Strong>(cpp_model)), "all wait");
  EXPECT_EQ((first_wrong<Strong, Strong, ReleaseShow>(cpp_model)), "all wait");
  EXPECT_EQ((first_wrong<AcquireLook, Strong, Strong>(cpp_model)), "all wait");
  EXPECT_EQ((first_wrong<Strong, AcquireLook, Strong>(cpp_model)), "all wait");
  EXPECT_EQ((first_wrong<Strong, Strong, AcquireLook>(cpp_model)), "all wait");
}

TEST(ShmLinkOrders, AStoreThatX86BuffersLosesAWakeUp) {
  using ReleaseShow = Orders<kRelease, kSeqCst>;
  EXPECT_EQ((first_wrong<ReleaseShow, Strong, Strong>(tso_model)), "all wait");
  EXPECT_EQ((first_wrong<Strong, ReleaseShow, Strong>(tso_model)), "all wait");
  EXPECT_EQ((first_wrong<Strong, Strong, ReleaseShow>(tso_model)), "all wait");
}

}  // namespace
}  // namespace ringdist::shm
