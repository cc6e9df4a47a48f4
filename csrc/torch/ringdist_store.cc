#include "torch/ringdist_store.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "os/per_process.h"
#include "os/socket.h"
#include "os/tls_key.h"
#include "torch/base/errors.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

ConstBytes view(const RingdistStore::Bytes& bytes) { return std::as_bytes(std::span(bytes)); }

std::string text_of(const RingdistStore::Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

RingdistStore::Bytes bytes_of(const std::vector<std::byte>& value) {
  const auto* data = reinterpret_cast<const uint8_t*>(value.data());
  return {data, data + value.size()};
}

uint16_t port_of(const Fd& listener) {
  const std::string address = value_of(local_address(listener));
  return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

struct HostedStores {
  std::mutex mutex;
  std::vector<std::pair<uint16_t, std::weak_ptr<HostedStore>>> stores  // with their ports
      RINGDIST_GUARDED_BY(mutex);
};
constinit PerProcess<HostedStores> hosted_stores;

}  // namespace

Result<std::shared_ptr<HostedStore>> serve_hosted_store(Fd listener,
                                                        std::shared_ptr<const TlsKey> key) {
  const uint16_t port = port_of(listener);
  auto served = HostedStore::serve(std::move(listener), std::move(key));
  if (!served.ok()) return served.error();
  std::shared_ptr<HostedStore> out = std::move(served.value());
  HostedStores& all = hosted_stores.get();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.stores, [](const auto& one) { return one.second.expired(); });
  all.stores.emplace_back(port, out);
  return out;
}

bool serves_hosted_store(uint16_t port) {
  HostedStores* const all = hosted_stores.find();
  if (all == nullptr) return false;
  std::lock_guard lock(all->mutex);
  return std::ranges::any_of(
      all->stores, [&](const auto& one) { return one.first == port && !one.second.expired(); });
}

void end_hosted_stores() {
  HostedStores* const all = hosted_stores.find();
  if (all == nullptr) return;
  std::lock_guard lock(all->mutex);
  for (const auto& [port, one] : all->stores)
    if (const auto store = one.lock()) store->stop();
}

RingdistStore::RingdistStore(const std::string& host, uint16_t port, Fd listener,
                             std::chrono::milliseconds timeout, const TlsFiles& files)
    : c10d::Store(timeout) {
  const auto key = value_of(read_tls_key(files));
  if (listener) {
    port = port_of(listener);
    hosted_ = value_of(serve_hosted_store(std::move(listener), key));
  }
  remote_ = std::make_shared<RemoteStore>(host, port, key, wait_in_slices);
  throw_if(remote_->connect(timeout));
}

c10::intrusive_ptr<c10d::Store> RingdistStore::clone() {
  return c10::intrusive_ptr<RingdistStore>::unsafe_steal_from_new(
      new RingdistStore(hosted_, remote_, timeout_));
}

void RingdistStore::set(const std::string& key, const Bytes& value) {
  throw_if(remote_->set(key, view(value)));
}

RingdistStore::Bytes RingdistStore::compareSet(const std::string& key, const Bytes& expected,
                                               const Bytes& desired) {
  const std::string there =
      value_of(remote_->compare_set(key, text_of(expected), text_of(desired)));
  return {there.begin(), there.end()};
}

RingdistStore::Bytes RingdistStore::get(const std::string& key) { return multiGet({key}).front(); }

int64_t RingdistStore::add(const std::string& key, int64_t amount) {
  return value_of(remote_->add(key, amount));
}

bool RingdistStore::deleteKey(const std::string& key) { return value_of(remote_->erase(key)); }

bool RingdistStore::check(const std::vector<std::string>& keys) {
  return value_of(remote_->check(keys));
}

int64_t RingdistStore::getNumKeys() { return value_of(remote_->count()); }

void RingdistStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void RingdistStore::wait(const std::vector<std::string>& keys,
                         const std::chrono::milliseconds& timeout) {
  const Error error = remote_->wait(keys, timeout == kNoTimeout ? kLongest : timeout);
  if (error && error.kind() == ErrorKind::kTimeout)
    C10_THROW_ERROR(DistStoreError, error.message());
  throw_if(error);
}

void RingdistStore::append(const std::string& key, const Bytes& value) {
  throw_if(remote_->append(key, view(value)));
}

std::vector<RingdistStore::Bytes> RingdistStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys, timeout_);
  std::vector<Bytes> out;
  for (const auto& value : value_of(remote_->multi_get(keys))) out.push_back(bytes_of(value));
  return out;
}

void RingdistStore::multiSet(const std::vector<std::string>& keys,
                             const std::vector<Bytes>& values) {
  if (keys.size() != values.size())
    throw_error(Error(ErrorKind::kInvalidArgument, "ringdist: multi_set: got " +
                                                       std::to_string(keys.size()) + " keys and " +
                                                       std::to_string(values.size()) + " values"));
  for (size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
}

}  // namespace ringdist
