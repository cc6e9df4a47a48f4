// The thread of EventWatcher. For its handling of events see stream_runner_test.cc.
#include "cuda/stream/event_watcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "support/fake_cuda.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

constexpr auto kTimeLimit = std::chrono::seconds(10);

// Fake events that are reached when the test sets a flag. Thread-safe.
class Events final : public CudaApi {
 public:
  std::atomic<bool> all{false};
  std::atomic<int> asked{0};

  Result<bool> reached(Event) override {
    ++asked;
    return all.load();
  }
  Result<std::array<uint8_t, 16>> identity(int) override { return unused(); }
  Result<std::string> address(int) override { return unused(); }
  Result<int> use(int) override { return unused(); }
  Result<Stream> make_stream() override { return unused(); }
  void free_stream(Stream) override {}
  Result<Event> make_event() override { return unused(); }
  void free_event(Event) override {}
  Error record(Event, Stream) override { return unused(); }
  Error wait(Stream, Event) override { return unused(); }
  Result<bool> captures(Stream) override { return unused(); }
  Result<void*> allocate(size_t, Stream) override { return unused(); }
  void free(void*, Stream) override {}
  Result<void*> allocate_pinned(size_t) override { return unused(); }
  void free_pinned(void*) override {}
  Error pin(void*, size_t) override { return {}; }
  void unpin(void*) override {}
  Error copy(void*, const void*, size_t, Stream) override { return unused(); }
  Error clear(void*, size_t, Stream) override { return unused(); }
  Error call(Stream, std::function<void()>) override { return unused(); }
  Error wait_flag(Stream, const uint32_t*, uint32_t) override { return unused(); }
  Error write_flag(Stream, uint32_t*, uint32_t) override { return unused(); }
  Error encode(KernelCodec, CallSpan<EncodeCall>, Stream) override { return unused(); }
  Error decode(KernelCodec, CallSpan<DecodeCall>, Stream) override { return unused(); }
  Error reduce(const ReduceCall&, Stream) override { return unused(); }
  Error run(CallSpan<Elements>, Stream) override { return unused(); }

 private:
  static Error unused() { return Error(ErrorKind::kNotSupported, "not of this test"); }
};

WatchedOp watched(std::promise<Error>& ended) {
  WatchedOp out;
  out.event = std::make_shared<int>(0);
  out.check = [] { return Error(); };
  out.ended = [&ended](const Error& error) { ended.set_value(error); };
  return out;
}

TEST(EventWatchThread, TellsWhenAnEventIsReachedAndThenAsksNoMore) {
  Events events;
  EventWatcher watch(events);
  for (int round = 0; round < 2; ++round) {
    events.all = false;
    std::promise<Error> ended;
    auto told = ended.get_future();
    watch.add(watched(ended));
    const int before = events.asked;
    while (events.asked < before + 3) std::this_thread::yield();
    EXPECT_EQ(told.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    events.all = true;
    ASSERT_EQ(told.wait_for(kTimeLimit), std::future_status::ready);
    EXPECT_FALSE(told.get());
  }
}

TEST(EventWatchThread, EndsWithWhatIsNotReached) {
  Events events;
  std::promise<Error> ended;
  {
    EventWatcher watch(events);
    watch.add(watched(ended));
    while (events.asked == 0) std::this_thread::yield();
  }
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST(EventWatchThread, TellsWhatGoesWrongBeforeTheEventIsReached) {
  Events events;
  EventWatcher watch(events);
  std::promise<Error> ended;
  auto told = ended.get_future();
  WatchedOp what = watched(ended);
  const auto held = std::make_shared<int>(0);
  what.held.push_back(held);
  what.check = [] { return Error(ErrorKind::kPeerLost, "made up"); };
  watch.add(std::move(what));
  ASSERT_EQ(told.wait_for(kTimeLimit), std::future_status::ready);
  EXPECT_EQ(told.get().kind(), ErrorKind::kPeerLost);
  EXPECT_GT(held.use_count(), 1) << "the device may use it still";
  events.all = true;
  while (held.use_count() > 1) std::this_thread::yield();
}

}  // namespace
}  // namespace ringdist::gpu
