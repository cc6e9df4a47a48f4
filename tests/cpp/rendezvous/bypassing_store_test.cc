#include "rendezvous/bypassing_store.h"

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "support/hooked_store.h"
#include "support/map_store.h"

namespace ringdist {
namespace {

constexpr auto kHeldAfter = std::chrono::milliseconds(50);

// A store over a connection that the test holds and frees.
class Bypassing : public testing::Test {
 protected:
  ~Bypassing() override {
    free();
    for (auto& thread : threads_) thread.join();
  }
  void hold() { held_ = std::make_shared<std::promise<void>>(); }
  void free() {
    if (held_) std::exchange(held_, nullptr)->set_value();
  }

  const std::shared_ptr<Store> map_ = std::make_shared<MapStore>();
  std::shared_ptr<std::promise<void>> held_;
  std::mutex mutex_;
  std::multiset<std::string> shared_, own_;  // what was done on each connection
  int opened_ = 0;
  bool drops_ = false;
  bool refuses_ = false;
  std::vector<std::thread> threads_;

  std::shared_ptr<Store> connection(std::multiset<std::string>& done, bool shared) {
    return std::make_shared<HookedStore>(map_, [this, &done, shared](std::string_view what) {
      if (const auto held = shared ? held_ : nullptr) held->get_future().wait();
      std::lock_guard lock(mutex_);
      done.insert(std::string(what));
    });
  }
  BypassingStore store_{connection(shared_, true),
                        [this]() -> Result<std::shared_ptr<Store>> {
                          ++opened_;
                          if (refuses_) return Error(ErrorKind::kSystem, "no connection");
                          return connection(own_, false);
                        },
                        [this](std::function<void()> task) {
                          if (!drops_) threads_.emplace_back(std::move(task));
                        },
                        kHeldAfter};
};

std::vector<std::byte> word(char letter) { return {std::byte(letter)}; }

TEST_F(Bypassing, AFreeConnectionIsUsedAlone) {
  EXPECT_FALSE(store_.set("a", word('x')));
  EXPECT_EQ(store_.add("n", 2).value(), 2);
  EXPECT_TRUE(store_.check({"a"}).value());
  EXPECT_EQ(store_.multi_get({"a"}).value()[0], word('x'));
  EXPECT_EQ(opened_, 0);
  EXPECT_TRUE(own_.empty());
}

TEST_F(Bypassing, AHeldOneIsBypassedFromThenOn) {
  hold();
  EXPECT_FALSE(store_.set("a", word('x')));
  EXPECT_EQ(store_.add("n", 2).value(), 2);
  EXPECT_TRUE(store_.check({"a"}).value());
  EXPECT_EQ(opened_, 1);
  EXPECT_EQ(own_.count("set"), 1u);
  EXPECT_EQ(own_.count("add"), 1u);
  free();
  EXPECT_EQ(store_.multi_get({"a"}).value()[0], word('x'));
  EXPECT_EQ(opened_, 1);
  EXPECT_EQ(shared_.count("set") + shared_.count("add") + shared_.count("multi_get"), 0u);
}

// Nothing is changed late or twice, whatever the shared connection does in the end.
TEST_F(Bypassing, WithoutAnotherConnectionItWaits) {
  hold();
  refuses_ = true;
  auto sum = std::async(std::launch::async, [&] { return store_.add("n", 1); });
  EXPECT_EQ(sum.wait_for(4 * kHeldAfter), std::future_status::timeout);
  free();
  EXPECT_EQ(sum.get().value(), 1);
  EXPECT_EQ(shared_.count("add"), 1u);
}

TEST_F(Bypassing, ADroppedQuestionIsAnError) {
  drops_ = true;
  const auto answer = store_.check({"a"});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().kind(), ErrorKind::kAborted);
}

}  // namespace
}  // namespace ringdist
