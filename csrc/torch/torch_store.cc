#include "torch/torch_store.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "base/log.h"
#include "base/thread_annotations.h"
#include "os/per_process.h"
#include "os/socket.h"
#include "rendezvous/fallback_store.h"
#include "rendezvous/rendezvous.h"
#include "rendezvous/sealed_store.h"
#include "store/hosted_store.h"
#include "store/remote_store.h"
#include "torch/ringdist_store.h"

namespace ringdist {
namespace {

// Adapter for one c10d store. All of its exceptions become Errors.
class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  Error set(const std::string& key, std::span<const std::byte> value) override {
    const auto* bytes = reinterpret_cast<const uint8_t*>(value.data());
    return guarded([&] { store_->set(key, std::vector<uint8_t>(bytes, bytes + value.size())); });
  }

  Result<std::vector<std::vector<std::byte>>> multi_get(
      const std::vector<std::string>& keys) override {
    std::vector<std::vector<std::byte>> out;
    const auto append = [&](const std::vector<uint8_t>& value) {
      const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
      out.emplace_back(bytes, bytes + value.size());
    };
    Error error = guarded([&] {
      if (store_->hasExtendedApi())
        for (const auto& value : store_->multiGet(keys)) append(value);
      else
        for (const auto& key : keys) append(store_->get(key));
    });
    if (error) return error;
    return out;
  }

  Result<int64_t> add(const std::string& key, int64_t amount) override {
    int64_t value = 0;
    if (Error error = guarded([&] { value = store_->add(key, amount); })) return error;
    return value;
  }

  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) override {
    std::string there;
    const auto ask = [&] {
      const std::vector<uint8_t> from(expected.begin(), expected.end());
      const std::vector<uint8_t> to(desired.begin(), desired.end());
      const auto answer = store_->compareSet(key, from, to);
      there.assign(answer.begin(), answer.end());
    };
    if (Error error = guarded(ask)) return error;
    return there;
  }

  Error remove(const std::string& key) override {
    return guarded([&] { (void)store_->deleteKey(key); });
  }

  Result<bool> check(const std::vector<std::string>& keys) override {
    bool there = false;
    if (Error error = guarded([&] { there = store_->check(keys); })) return error;
    return there;
  }

 private:
  // Stores throw many kinds of exceptions. All of them mean that the store does not work.
  template <typename Fn>
  Error guarded(Fn&& fn) {
    try {
      fn();
      return {};
    } catch (const std::exception& e) {
      return Error(ErrorKind::kSystem, std::string("the store failed: ") + e.what());
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

// Returns the TCPStore under the prefixes; null if there is none.
c10::intrusive_ptr<c10d::TCPStore> tcp_store(const c10::intrusive_ptr<c10d::Store>& store) {
  // Not dynamic_intrusive_pointer_cast: if that fails it never releases the reference.
  const auto whole = unprefixed_store(store);
  auto* const tcp = dynamic_cast<c10d::TCPStore*>(whole.get());
  return tcp ? c10::intrusive_ptr<c10d::TCPStore>::unsafe_reclaim_from_nonowning(tcp)
             : c10::intrusive_ptr<c10d::TCPStore>();
}

// Makes each kind of request that TorchStore sends once, on this thread. At the first one of a kind
// PyTorch registers a counter under a lock of the whole process (c10/util/WaitCounter.h), and
// init_process_group() takes that lock. If a thread of the pool held it while the user forks, the
// child would block for ever.
void use_each_request(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> nothing;
  try {
    store.set(key, nothing);
    (void)store.multiGet({key});
    (void)store.check({key});
    (void)store.compareSet(key, nothing, nothing);
    (void)store.deleteKey(key);
    (void)store.add(key, 0);
    (void)store.deleteKey(key);
  } catch (const std::exception&) {  // the caller's own requests report it
  }
}

constexpr std::chrono::seconds kOpenTime{30};

// Returns an address in the form that sockets accept, for IPv6 without brackets.
std::string host_of(std::string ip) {
  if (ip.starts_with('[') && ip.ends_with(']')) ip = ip.substr(1, ip.size() - 2);
  return ip;
}

// Options of a store that does not wait for clients.
c10d::TCPStoreOptions server_options() {
  c10d::TCPStoreOptions out;
  out.port = 0;  // the system chooses one
  out.isServer = true;
  out.waitWorkers = false;
  out.timeout = kOpenTime;
  return out;
}

// Serves a TCPStore at this process, and opens those of others.
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
  std::mutex mutex_;  // held while the store starts
  c10::intrusive_ptr<c10d::TCPStore> served_ RINGDIST_GUARDED_BY(mutex_);
};

// Serves a HostedStore with a key at this process, and opens those of others. Their addresses begin
// with a scheme, and those of TCPStores do not.
class HostedStoreServer final : public StoreServer {
 public:
  explicit HostedStoreServer(std::shared_ptr<const TlsKey> key) : key_(std::move(key)) {}

  // A group may use another network than an earlier one, so there is a store for each address.
  std::string offer(const std::string& ip) override {
    std::lock_guard lock(mutex_);
    std::shared_ptr<HostedStore>& there = served_[ip];
    if (!there) {
      auto listener = listen_tcp(host_of(ip), 0);
      auto served = listener.ok() ? serve_hosted_store(std::move(listener.value()), key_)
                                  : Result<std::shared_ptr<HostedStore>>(listener.error());
      if (!served.ok()) {
        log(LogLevel::kWarn, "no store can be served here: " + served.error().message());
        return "";
      }
      there = std::move(served.value());
    }
    return kScheme + there->address();
  }

  Result<std::shared_ptr<Store>> open(const std::string& address) override {
    const size_t colon = address.rfind(':');
    const size_t begin = kScheme.size();
    unsigned long port = 0;
    if (address.starts_with(kScheme) && colon > begin)
      port = strtoul(address.c_str() + colon + 1, nullptr, 10);
    if (port == 0 || port > UINT16_MAX)
      return Error(ErrorKind::kSystem, "a member has sent no address of a store: " + address);
    return open_hosted_store(host_of(address.substr(begin, colon - begin)),
                             static_cast<uint16_t>(port), key_, kOpenTime);
  }

 private:
  static inline const std::string kScheme = "ringdist://";

  const std::shared_ptr<const TlsKey> key_;
  std::mutex mutex_;  // held while the store starts
  std::map<std::string, std::shared_ptr<HostedStore>> served_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::shared_ptr<Store>> open_hosted_store(const std::string& host, uint16_t port,
                                                 std::shared_ptr<const TlsKey> key,
                                                 Milliseconds timeout) {
  const auto wait = [](auto limit, const auto& wait_for) { return wait_for(limit); };
  const auto out = std::make_shared<RemoteStore>(host, port, std::move(key), wait);
  if (Error error = out->connect(timeout)) return error;
  return std::shared_ptr<Store>(out);
}

c10::intrusive_ptr<c10d::Store> unprefixed_store(const c10::intrusive_ptr<c10d::Store>& store) {
  auto* prefixed = dynamic_cast<c10d::PrefixStore*>(store.get());
  return prefixed ? prefixed->getUnderlyingNonPrefixStore() : store;
}

std::shared_ptr<Store> wrap_store(c10::intrusive_ptr<c10d::Store> store) {
  return std::make_shared<TorchStore>(std::move(store));
}

std::shared_ptr<Store> wrap_store(c10::intrusive_ptr<c10d::Store> store, Context& context,
                                  const std::string& scope) {
  const auto* const own = dynamic_cast<RingdistStore*>(unprefixed_store(store).get());
  if (own && own->remote()->is_encrypted()) return wrap_store(std::move(store));
  const auto sealed = [&](std::shared_ptr<Store> one) {
    return sealed_with(context.tls_key(), std::move(one), scope);
  };
  if (!tcp_store(store)) return sealed(wrap_store(std::move(store)));
  static std::once_flag first;
  std::call_once(first, [&] {
    use_each_request(*store, "ringdist/first use by " + std::to_string(context.id()));
  });
  // A clone is a client with a connection of its own.
  const auto open = [store]() -> Result<std::shared_ptr<Store>> {
    try {
      return wrap_store(store->clone());
    } catch (const std::exception& e) {
      return Error(ErrorKind::kSystem, std::string("the store failed: ") + e.what());
    }
  };
  const auto run = [&context](std::function<void()> task) { context.pool().run(std::move(task)); };
  return sealed(std::make_shared<FallbackStore>(wrap_store(store), open, run));
}

std::shared_ptr<Store> open_tcp_store(const std::string& host, uint16_t port,
                                      Milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.waitWorkers = false;
  options.timeout = timeout;
  return wrap_store(c10::make_intrusive<c10d::TCPStore>(host, options));
}

void publish_failure(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                     const std::vector<int>& members, const Error& why) {
  (void)publish_failure(*wrap_store(store), rank, members, why);  // without the store no rank waits
}

std::string store_host(const c10::intrusive_ptr<c10d::Store>& store) {
  const auto tcp = tcp_store(store);
  const auto whole = unprefixed_store(store);
  const auto* const own = dynamic_cast<RingdistStore*>(whole.get());
  return tcp ? tcp->getHost() : own ? own->host() : "";
}

// Not a static object: a store must not end in static destructors, and a forked child serves none.
std::shared_ptr<StoreServer> process_store_server(const std::shared_ptr<const TlsKey>& key) {
  struct Home {
    std::mutex mutex;
    std::shared_ptr<StoreServer> home RINGDIST_GUARDED_BY(mutex);
  };
  static constinit PerProcess<Home> homes;
  Home& one = homes.get();
  std::lock_guard lock(one.mutex);
  if (!one.home && key) one.home = std::make_shared<HostedStoreServer>(key);
  if (!one.home) one.home = std::make_shared<TcpStoreServer>();
  return one.home;
}

}  // namespace ringdist
