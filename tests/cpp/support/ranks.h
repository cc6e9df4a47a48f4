// A group of ranks that are threads of this process. Each rank has its own Context, or all share
// one, over a chosen transport. Every wait has a deadline. When it passes, the dumps of all ranks
// are printed and the test process ends, because its threads cannot be stopped.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/communicator.h"
#include "support/map_store.h"
#include "support/requests.h"
#include "transport/local/local_transport.h"

namespace ringdist {

inline constexpr auto kHang = std::chrono::seconds(60);  // deadline of every wait

struct RanksOptions {
  int size = 2;
  std::map<int, std::vector<std::string>>
      transports;  // by rank; "local" for ranks that are not listed
  LocalOptions network;
  bool one_context = false;
  std::map<std::string, std::string> config;  // by config field
  Milliseconds timeout{20000};
  // Returns the store that a rank uses, given the store that all ranks share.
  std::function<std::shared_ptr<Store>(int rank, std::shared_ptr<Store>)> store;
  std::function<MakeDeviceRunner(int rank)> make_runner;  // null: no rank has devices
};

inline RanksOptions of_size(int size) {
  RanksOptions out;
  out.size = size;
  return out;
}

class Ranks {
 public:
  explicit Ranks(RanksOptions options);
  ~Ranks();

  int size() const { return options_.size; }
  Communicator& operator[](int rank) { return *communicators_[rank]; }
  Context& context(int rank) { return *contexts_[rank]; }
  std::shared_ptr<Context> share(int rank) { return contexts_[rank]; }
  Config config() const;

  // Creates another group on the same Contexts. `stores` may give a rank its own view of the
  // store.
  std::vector<std::shared_ptr<Communicator>> another(
      const std::string& name, const std::map<int, std::shared_ptr<Store>>& stores = {});
  std::shared_ptr<Store> store() { return store_; }
  LocalNetwork& network() { return *network_; }
  std::shared_ptr<LocalNetwork> shared_network() { return network_; }
  void drop_group() { communicators_.clear(); }

  // Runs `body` for every rank, each in its own thread. Does not rethrow exceptions, and ends the
  // process on a hang.
  void run(const std::function<void(int rank)>& body);

 private:
  const RanksOptions options_;
  std::shared_ptr<MapStore> store_ = std::make_shared<MapStore>();
  const std::shared_ptr<LocalNetwork> network_;
  std::vector<std::shared_ptr<Context>> contexts_;
  std::vector<std::shared_ptr<Communicator>> communicators_;
};

// Submits the request and waits. Returns the error of the op or of the submission.
Error run_op(Communicator& communicator, OpRequest request);
Error wait_op(Communicator& communicator, const Op& op);

}  // namespace ringdist
