#include "support/ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdio>
#include <thread>

namespace ringdist {
namespace {

template <typename T>
T must(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.error().what();
  if (!result.ok()) _exit(3);
  return std::move(result.value());
}

}  // namespace

Config Ranks::config() const { return must(Config::parse({}, options_.config)); }

Ranks::Ranks(RanksOptions options)
    : options_(std::move(options)), network_(make_local_network(options_.network)) {
  ContextOptions wanted;
  wanted.config = config();
  wanted.store_host = "127.0.0.1";
  wanted.local_network = network_;
  for (int rank = 0; rank < size(); ++rank) {
    const auto own = options_.transports.find(rank);
    wanted.transports =
        own == options_.transports.end() ? std::vector<std::string>{"local"} : own->second;
    contexts_.push_back(rank > 0 && options_.one_context ? contexts_[0]
                                                         : must(Context::create(wanted)));
  }
  std::map<int, std::shared_ptr<Store>> stores;
  for (int rank = 0; options_.store && rank < size(); ++rank)
    stores[rank] = options_.store(rank, store_);
  communicators_ = another("test", stores);
}

Ranks::~Ranks() {
  communicators_.clear();
  for (auto& context : contexts_) context->shutdown();
}

std::vector<std::shared_ptr<Communicator>> Ranks::another(
    const std::string& name, const std::map<int, std::shared_ptr<Store>>& stores) {
  std::vector<std::shared_ptr<Communicator>> out;
  for (int rank = 0; rank < size(); ++rank) {
    CommunicatorOptions wanted;
    wanted.rank = rank;
    wanted.size = size();
    wanted.name = name;
    for (int member = 0; member < size(); ++member) wanted.members.push_back(member);
    wanted.timeout = options_.timeout;
    wanted.config = config();
    if (options_.make_runner) wanted.make_runner = options_.make_runner(rank);
    wanted.store = stores.contains(rank) ? stores.at(rank) : store_;
    out.push_back(must(Communicator::create(contexts_[rank], std::move(wanted))));
  }
  return out;
}

void Ranks::run(const std::function<void(int rank)>& body) {
  std::mutex mutex;
  std::condition_variable ended;
  int running = size();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size(); ++rank)
    threads.emplace_back([&, rank] {
      body(rank);
      std::lock_guard lock(mutex);
      --running;
      ended.notify_all();
    });
  {
    std::unique_lock lock(mutex);
    if (!ended.wait_for(lock, kHang, [&] { return running == 0; })) {
      std::fprintf(stderr, "a test hangs; what its ranks do:\n");
      for (auto& context : contexts_) std::fprintf(stderr, "%s", context->dump().c_str());
      _exit(4);
    }
  }
  for (auto& thread : threads) thread.join();
}

Error wait_op(Communicator& communicator, const Op& op) {
  communicator.wait(op, std::nullopt);
  return op.error();
}

Error run_op(Communicator& communicator, OpRequest request) {
  auto op = communicator.submit(std::move(request), /*will_wait=*/true);
  if (!op.ok()) return op.error();
  return wait_op(communicator, *op.value());
}

}  // namespace ringdist
