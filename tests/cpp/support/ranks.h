// A group whose ranks are threads of this process: each with a Context of its own (or all with
// one), over a transport of choice. Every wait has a deadline; when it passes, the ranks' dumps are
// printed and the test process ends, because its threads cannot be stopped.
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

inline constexpr auto kHang = std::chrono::seconds(60);  // the deadline of every wait

struct RanksOptions {
  int size = 2;
  std::map<int, std::vector<std::string>> transports;  // by rank; "local" for those not named
  LocalOptions network;
  bool one_context = false;
  std::map<std::string, std::string> config;  // by field
  Milliseconds timeout{20000};
  // A rank's way to the store that all share.
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

  // Another group of the same Contexts; ranks may have their own way to the store.
  std::vector<std::shared_ptr<Communicator>> another(
      const std::string& name, const std::map<int, std::shared_ptr<Store>>& stores = {});
  std::shared_ptr<Store> store() { return store_; }
  LocalNetwork& network() { return *network_; }
  std::shared_ptr<LocalNetwork> shared_network() { return network_; }
  void drop_group() { communicators_.clear(); }

  // Runs `body` for every rank, each in a thread; rethrows nothing, ends the process on a hang.
  void run(const std::function<void(int rank)>& body);

 private:
  const RanksOptions options_;
  std::shared_ptr<MapStore> store_ = std::make_shared<MapStore>();
  const std::shared_ptr<LocalNetwork> network_;
  std::vector<std::shared_ptr<Context>> contexts_;
  std::vector<std::shared_ptr<Communicator>> communicators_;
};

// Submits and waits; the op's error, or the submission's.
Error run_op(Communicator& communicator, OpRequest request);
Error wait_op(Communicator& communicator, const Op& op);

}  // namespace ringdist
