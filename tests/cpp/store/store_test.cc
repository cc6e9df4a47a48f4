// The store of a job: its server and its client, plain and with a key.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "os/socket.h"
#include "store/hosted_store.h"
#include "store/remote_store.h"
#include "support/test_key.h"
#include "support/threads.h"

namespace ringdist {
namespace {

using Keys = std::vector<std::string>;
using Value = std::vector<std::byte>;

Value bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_of(const Value& value) {
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

bool wait_plainly(std::optional<Milliseconds> limit,
                  const std::function<bool(std::optional<Milliseconds>)>& wait) {
  return wait(limit);
}

// With `has_key`, server and clients have the same key.
class StoreTest : public testing::TestWithParam<bool> {
 protected:
  const std::shared_ptr<const TlsKey> key_ = GetParam() ? key_of(1) : nullptr;
  std::unique_ptr<HostedStore> hosted_ =
      std::move(HostedStore::serve(std::move(listen_tcp("127.0.0.1", 0).value()), key_).value());

  std::unique_ptr<RemoteStore> client(std::shared_ptr<const TlsKey> key) {
    const std::string& address = hosted_->address();
    const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
    return std::make_unique<RemoteStore>("127.0.0.1", port, std::move(key), wait_plainly);
  }
  std::unique_ptr<RemoteStore> client() {
    auto out = client(key_);
    const Error error = out->connect(std::chrono::seconds(20));
    EXPECT_FALSE(error) << error.message();
    return out;
  }
};

TEST_P(StoreTest, StopEndsItsThreads) {
  const auto connected = client();
  EXPECT_EQ(count_threads("ringdist-store"), 1);
  EXPECT_EQ(count_threads("ringdist-tls"), GetParam() ? 1 : 0);
  hosted_->stop();
  hosted_->stop();
  EXPECT_EQ(count_threads("ringdist-store") + count_threads("ringdist-tls"), 0);
  EXPECT_EQ(connected->connect(Milliseconds(100)).kind(), ErrorKind::kPeerLost);
}

TEST_P(StoreTest, HasTheMeaningOfC10dsStores) {
  const auto a = client();
  const auto b = client();
  EXPECT_FALSE(a->set("text", bytes_of("one")));
  EXPECT_EQ(text_of(b->multi_get({"text"}).value()[0]), "one");
  EXPECT_FALSE(b->append("text", bytes_of(" two")));
  EXPECT_FALSE(b->append("new", bytes_of("x")));
  EXPECT_EQ(text_of(*a->find("text").value()), "one two");
  EXPECT_EQ(a->find("absent").value(), std::nullopt);
  EXPECT_EQ(a->multi_get({"text", "absent"}).error().kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(a->add("count", 2).value(), 2);
  EXPECT_EQ(b->add("count", -5).value(), -3);
  EXPECT_EQ(text_of(*a->find("count").value()), "-3");
  EXPECT_EQ(a->compare_set("vote", "x", "a").value(), "x");
  EXPECT_EQ(a->compare_set("vote", "", "a").value(), "a");
  EXPECT_EQ(b->compare_set("vote", "", "b").value(), "a");
  EXPECT_EQ(b->compare_set("vote", "a", "b").value(), "b");
  EXPECT_TRUE(a->check({"text", "vote"}).value());
  EXPECT_FALSE(a->check({"text", "absent"}).value());
  EXPECT_EQ(a->count().value(), 4);
  EXPECT_TRUE(b->erase("vote").value());
  EXPECT_FALSE(b->erase("vote").value());
  EXPECT_EQ(a->count().value(), 3);
}

TEST_P(StoreTest, RefusesAnAddToAText) {
  const auto a = client();
  for (const std::string_view text : {"", "x", "1 ", "99999999999999999999", "\xff"}) {
    ASSERT_FALSE(a->set("key", bytes_of(text)));
    const auto sum = a->add("key", 0);
    ASSERT_FALSE(sum.ok()) << text;
    EXPECT_NE(sum.error().message().find("no number"), std::string::npos);
  }
  ASSERT_FALSE(a->set("key", bytes_of("9223372036854775807")));
  EXPECT_FALSE(a->add("key", 1).ok());
  EXPECT_EQ(a->add("key", -1).value(), 9223372036854775806);
}

TEST_P(StoreTest, AWaitEndsWhenAllKeysAreThere) {
  const auto a = client();
  std::atomic<bool> over = false;
  auto waiting = std::async(std::launch::async, [&] {
    const Error error = a->wait({"one", "two", "one"}, std::chrono::seconds(20));
    over = true;
    return error;
  });
  EXPECT_FALSE(a->set("one", {}));  // the wait delays no other request of the client
  EXPECT_EQ(a->wait({"two"}, Milliseconds(200)).kind(), ErrorKind::kTimeout);
  EXPECT_FALSE(over);
  EXPECT_EQ(client()->add("two", 1).value(), 1);
  const Error error = waiting.get();
  EXPECT_FALSE(error) << error.message();
  EXPECT_FALSE(a->wait({"one", "two"}, Milliseconds(0)));
}

TEST_P(StoreTest, CarriesLargeValues) {
  const auto a = client();
  const Value large(7 << 20, std::byte{5});
  EXPECT_FALSE(a->set("large", large));
  EXPECT_TRUE(a->multi_get({"large"}).value()[0] == large);
  const Error error = a->set("larger", Value(kMaxStoreMessage));
  EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument) << error.message();
  EXPECT_EQ(a->append("large", Value(2 << 20)).kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(a->multi_get({"large", "large"}).value().size(), 2U) << "in two answers";
  EXPECT_EQ(a->count().value(), 1);
}

TEST_P(StoreTest, EndsOfTheServerAreReported) {
  const auto a = client();
  auto waiting =
      std::async(std::launch::async, [&] { return a->wait({"key"}, std::chrono::seconds(60)); });
  while (waiting.wait_for(Milliseconds(200)) == std::future_status::ready) {
  }
  hosted_.reset();
  EXPECT_EQ(waiting.get().kind(), ErrorKind::kPeerLost);
  EXPECT_EQ(a->set("key", {}).kind(), ErrorKind::kPeerLost);
}

TEST_P(StoreTest, ManyClientsAtOnce) {
  std::vector<std::future<int64_t>> sums;
  for (int i = 0; i < 20; ++i)
    sums.push_back(std::async(std::launch::async, [this] {
      const auto one = client();
      for (int n = 0; n < 50; ++n) (void)one->add("sum", 1);
      return one->add("sum", 0).value();
    }));
  for (auto& sum : sums) EXPECT_GE(sum.get(), 50);
  EXPECT_EQ(client()->add("sum", 0).value(), 1000);
}

TEST_P(StoreTest, StrangersAreRefusedAndBounded) {
  const auto good = client();
  std::vector<Fd> strangers;
  for (int i = 0; i < 600; ++i) strangers.push_back(std::move(connect_tcp(hosted_->address()).fd));
  EXPECT_FALSE(good->set("key", {}));
  const std::string noise(1000, '\x7f');
  for (const Fd& one : strangers)
    (void)send(one.get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  for (const Fd& one : strangers) {
    pollfd entry{one.get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 8000), 1) << "it is kept";
  }
  EXPECT_TRUE(good->check({"key"}).value());
  EXPECT_FALSE(client()->set("other", {}));
}

TEST_P(StoreTest, AnotherKeyOrNoneIsNamed) {
  const auto expect_refused = [&](std::shared_ptr<const TlsKey> key) {
    const Milliseconds limit = std::chrono::seconds(key ? 20 : 3);
    const auto stranger = client(std::move(key));
    const Error error = stranger->connect(limit);
    ASSERT_TRUE(error);
    EXPECT_NE(error.message().find("RINGDIST_KEY_FILE"), std::string::npos) << error.message();
    EXPECT_TRUE(stranger->set("key", {}));
  };
  expect_refused(key_of(2));
  if (GetParam()) expect_refused(nullptr);
  EXPECT_EQ(client()->count().value(), 0);
}

TEST_P(StoreTest, AForkedChildDoesNotUseIt) {
  const auto a = client();
  EXPECT_FALSE(a->set("key", {}));
  const pid_t child = fork();
  if (child == 0) {
    const bool fails = a->set("key", bytes_of("child")).kind() == ErrorKind::kPeerLost;
    hosted_.reset();
    _exit(fails ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(text_of(*a->find("key").value()), "");
}

INSTANTIATE_TEST_SUITE_P(Keys, StoreTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "Sealed" : "Plain"; });

// Any bytes are a value or nothing.
// Clients that read late must not cost others their answers.
TEST(HostedStoreTest, AnswersOfMoreThanItBuffersAllArrive) {
  auto hosted =
      std::move(HostedStore::serve(std::move(listen_tcp("127.0.0.1", 0).value()), nullptr).value());
  const std::string& address = hosted->address();
  const auto port = static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
  RemoteStore writer("127.0.0.1", port, nullptr, wait_plainly);
  ASSERT_FALSE(writer.connect(std::chrono::seconds(20)));
  ASSERT_FALSE(writer.set("large", Value(kMaxStoreValue)));
  const StoreRequest hello{.op = StoreOp::kHello, .number = StoreRequest::kVersion};
  const StoreRequest get{.op = StoreOp::kGet, .keys = {"large"}};
  std::vector<Fd> readers;
  for (int i = 0; i < 40; ++i) {  // 320 MiB of answers
    readers.push_back(std::move(connect_tcp(address).fd));
    pollfd entry{readers.back().get(), POLLOUT, 0};
    ASSERT_EQ(poll(&entry, 1, 8000), 1);
    for (const StoreRequest& one : {hello, get}) {
      const auto bytes = one.frame();
      ASSERT_EQ(send(readers.back().get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(bytes.size()));
    }
  }
  std::this_thread::sleep_for(Milliseconds(500));
  // In any order: the store may have held back the first request for the answers of others.
  Value buffer(size_t{1} << 20);
  std::vector<size_t> sums(readers.size());
  std::vector<pollfd> unread;
  for (const Fd& reader : readers) unread.push_back({reader.get(), POLLIN, 0});
  while (std::ranges::any_of(unread, [](const pollfd& one) { return one.fd >= 0; })) {
    ASSERT_GT(poll(unread.data(), unread.size(), 20000), 0);
    for (size_t i = 0; i < unread.size(); ++i) {
      if (unread[i].revents == 0) continue;
      const ssize_t got = recv(unread[i].fd, buffer.data(), buffer.size(), 0);
      ASSERT_GT(got, 0) << "after " << sums[i] << " bytes";
      sums[i] += static_cast<size_t>(got);
      if (sums[i] >= kMaxStoreValue) unread[i].fd = -1;  // poll() ignores it
    }
  }
  EXPECT_TRUE(writer.check({"large"}).value());
}

TEST(StoreMessages, AnyBytesAreDecodedSafely) {
  const auto request =
      StoreRequest{.op = StoreOp::kCompareSet, .keys = {"key"}, .values = {{}, bytes_of("v")}}
          .frame();
  const ConstBytes body = ConstBytes(request).subspan(5);
  ASSERT_TRUE(StoreRequest::decode(body));
  for (size_t cut = 0; cut < body.size(); ++cut)
    EXPECT_FALSE(StoreRequest::decode(body.first(cut)));
  const auto answer = StoreAnswer{.text = "why", .values = {bytes_of("v")}}.frame();
  ASSERT_TRUE(StoreAnswer::decode(ConstBytes(answer).subspan(5)));
  std::vector<std::byte> huge(64, std::byte{0xff});
  EXPECT_FALSE(StoreAnswer::decode(huge));
  EXPECT_FALSE(StoreRequest::decode(huge));
}

TEST(StoreTable, BoundsWhatIsWaitedFor) {
  StoreTable table;
  Keys keys;
  for (size_t i = 0; i < kMaxStoreKeys; ++i) keys.push_back(std::to_string(i));
  uint64_t client = 0;
  while (!table.handle(++client, {.op = StoreOp::kWait, .keys = keys})) {
  }
  EXPECT_LT(client, 10u);
  table.end_wait(1);
  EXPECT_FALSE(table.handle(1, {.op = StoreOp::kWait, .keys = keys}));
  keys.emplace_back("one more");
  const auto frame = StoreRequest{.op = StoreOp::kCheck, .keys = keys}.frame();
  EXPECT_FALSE(StoreRequest::decode(ConstBytes(frame).subspan(5)));
}

TEST(StoreTable, ForgetsWhoWaitsNoLonger) {
  StoreTable table;
  EXPECT_FALSE(table.handle(1, {.op = StoreOp::kWait, .keys = {"a", "b"}}));
  EXPECT_FALSE(table.handle(2, {.op = StoreOp::kWait, .keys = {"a"}}));
  table.end_wait(1);
  EXPECT_TRUE(table.handle(3, {.op = StoreOp::kSet, .keys = {"a"}, .values = {{}}}));
  EXPECT_EQ(table.take_ready(), std::vector<uint64_t>{2});
  EXPECT_TRUE(table.handle(3, {.op = StoreOp::kSet, .keys = {"b"}, .values = {{}}}));
  EXPECT_TRUE(table.take_ready().empty());
  for (const auto& wrong : {StoreRequest{.op = StoreOp::kSet},
                            {.op = StoreOp::kAdd},
                            {.op = StoreOp::kCompareSet, .keys = {"a"}},
                            {.op = StoreOp::kHello},
                            {.op = StoreOp::kCount, .keys = {"a"}}})
    EXPECT_EQ(table.handle(4, wrong)->status, StoreAnswer::Status::kRefused);
}

}  // namespace
}  // namespace ringdist
