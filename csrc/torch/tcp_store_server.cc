#include "torch/tcp_store_server.h"

#include <mutex>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/log.h"
#include "base/thread_annotations.h"
#include "os/per_process.h"
#include "torch/torch_store.h"

namespace ringdist {
namespace {

constexpr std::chrono::seconds kOpenTime{30};

// Of IPv6 as sockets take it: without the brackets.
std::string host_of(std::string ip) {
  if (ip.starts_with('[') && ip.ends_with(']')) ip = ip.substr(1, ip.size() - 2);
  return ip;
}

c10d::TCPStoreOptions server_options() {
  c10d::TCPStoreOptions out;
  out.port = 0;  // any
  out.isServer = true;
  out.waitWorkers = false;
  out.timeout = kOpenTime;
  return out;
}

class TcpStoreServer final : public StoreServer {
 public:
  std::string offer(const std::string& ip) override {
    std::lock_guard lock(mutex_);
    try {
      if (!served_) served_ = c10::make_intrusive<c10d::TCPStore>(host_of(ip), server_options());
      return ip + ":" + std::to_string(served_->getPort());
    } catch (const std::exception& e) {
      log(LogLevel::kWarn, std::string("no store can be served here: ") + e.what());
      return "";
    }
  }

  Result<std::shared_ptr<Store>> open(const std::string& address) override {
    const size_t colon = address.rfind(':');
    try {
      const auto port = static_cast<uint16_t>(std::stoi(address.substr(colon + 1)));
      return open_tcp_store(host_of(address.substr(0, colon)), port, kOpenTime);
    } catch (const std::exception& e) {
      return Error(ErrorKind::kSystem, "the store at " + address + " was not reached: " + e.what());
    }
  }

 private:
  std::mutex mutex_;  // held while it begins
  c10::intrusive_ptr<c10d::TCPStore> served_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace

// A store must not end in static destructors, and serves nobody in a forked child.
std::shared_ptr<StoreServer> process_store_server() {
  struct Home {
    std::shared_ptr<StoreServer> home = std::make_shared<TcpStoreServer>();
  };
  static constinit PerProcess<Home> homes;
  return homes.get().home;
}

}  // namespace ringdist
