#include "engine/communicator.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/map_store.h"
#include "support/no_threads.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

// The rank's entry is already in the store, so the others would wait for the rank until their
// timeout.
TEST(Communicator, ARankWithoutAThreadTellsThoseWhoLookForIt) {
  const auto store = std::make_shared<MapStore>();
  const auto network = make_local_network({});
  const auto make_context = [&] {
    ContextOptions wanted;
    wanted.config = Config::parse({}, {}).value();
    wanted.store_host = "127.0.0.1";
    wanted.local_network = network;
    wanted.transports = {"local"};
    return Context::create(wanted).value();
  };
  const auto make_group = [&](const std::shared_ptr<Context>& context, int rank) {
    CommunicatorOptions wanted;
    wanted.rank = rank;
    wanted.size = 2;
    wanted.name = "test";
    wanted.members = {0, 1};
    wanted.timeout = kHang;
    wanted.config = Config::parse({}, {}).value();
    wanted.store = store;
    return Communicator::create(context, std::move(wanted));
  };
  const auto first = make_context();
  const auto second = make_context();  // its pool has run no task yet
  const auto group = make_group(first, 0).value();
  {
    const NoThreads none;
    const auto crowded = make_group(second, 1);
    ASSERT_FALSE(crowded.ok());
    EXPECT_NE(crowded.error().message().find("raise 'ulimit -u'"), std::string::npos)
        << crowded.error().what();
  }
  const TimePoint begin = Clock::now();
  std::vector<int32_t> data{1};
  const Error error = run_op(*group, allreduce_request(data, DType::kInt32, ReduceOp::kSum));
  ASSERT_TRUE(error);
  EXPECT_NE(error.message().find("raise 'ulimit -u'"), std::string::npos) << error.what();
  EXPECT_LT(Clock::now() - begin, kHang / 2);
  group->close();
  for (const auto& context : {first, second}) context->shutdown();
}

}  // namespace
}  // namespace ringdist
