#include "rendezvous/fallback_store.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <set>
#include <thread>

#include "support/hooked_store.h"
#include "support/map_store.h"

namespace ringdist {
namespace {

constexpr auto kHeldAfter = std::chrono::milliseconds(50);

// A store over a connection that the test can block and release.
class Bypassing : public testing::Test {
 protected:
  ~Bypassing() override {
    free();
    for (auto& thread : threads_) thread.join();
  }
  void hold() {
    std::lock_guard lock(mutex_);
    gate_.emplace();
    held_ = gate_->get_future().share();
  }
  void free() {
    std::lock_guard lock(mutex_);
    if (gate_) gate_->set_value();
    gate_.reset();
    held_ = {};
  }

  const std::shared_ptr<Store> map_ = std::make_shared<MapStore>();
  std::mutex mutex_;
  std::optional<std::promise<void>> gate_;
  std::shared_future<void> held_;            // blocks the shared connection
  std::multiset<std::string> shared_, own_;  // operations by connection
  int opened_ = 0;
  bool drops_ = false;
  bool refuses_ = false;
  std::vector<std::thread> threads_;

  std::shared_ptr<Store> connection(std::multiset<std::string>& done, bool shared) {
    return std::make_shared<HookedStore>(map_, [this, &done, shared](std::string_view what) {
      std::unique_lock lock(mutex_);
      const std::shared_future<void> held = held_;
      lock.unlock();
      if (shared && held.valid()) held.wait();
      lock.lock();
      done.insert(std::string(what));
    });
  }
  FallbackStore store_{connection(shared_, true),
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
  std::lock_guard lock(mutex_);
  EXPECT_TRUE(own_.empty());
}

TEST_F(Bypassing, AHeldOneIsBypassedFromThenOn) {
  hold();
  EXPECT_FALSE(store_.set("a", word('x')));
  EXPECT_EQ(store_.add("n", 2).value(), 2);
  EXPECT_TRUE(store_.check({"a"}).value());
  EXPECT_EQ(opened_, 1);
  free();
  EXPECT_EQ(store_.multi_get({"a"}).value()[0], word('x'));
  EXPECT_EQ(opened_, 1);
  std::lock_guard lock(mutex_);
  EXPECT_EQ(own_.count("set"), 1u);
  EXPECT_EQ(own_.count("add"), 1u);
  EXPECT_EQ(shared_.count("set") + shared_.count("add") + shared_.count("multi_get"), 0u);
}

// No operation is late or applied twice, however the shared connection ends.
TEST_F(Bypassing, WithoutAnotherConnectionItWaits) {
  hold();
  refuses_ = true;
  auto sum = std::async(std::launch::async, [&] { return store_.add("n", 1); });
  EXPECT_EQ(sum.wait_for(4 * kHeldAfter), std::future_status::timeout);
  free();
  EXPECT_EQ(sum.get().value(), 1);
  std::lock_guard lock(mutex_);
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
