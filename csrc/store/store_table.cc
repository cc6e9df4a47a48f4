// The keys and values of a HostedStore.
#include <algorithm>
#include <charconv>
#include <iterator>
#include <utility>

#include "store/hosted_store.h"

namespace ringdist {
namespace {

using Status = StoreAnswer::Status;

constexpr size_t kWaitCost = 256;  // bytes that a key of a wait counts beside its own

StoreAnswer refused(std::string why) {
  return {.status = Status::kRefused, .text = std::move(why)};
}

// Returns the number of keys (-1 for any number) and of values that an operation needs.
std::pair<int, size_t> needs(StoreOp op) {
  switch (op) {
    case StoreOp::kSet:
    case StoreOp::kAppend:
      return {1, 1};
    case StoreOp::kCompareSet:
      return {1, 2};
    case StoreOp::kAdd:
    case StoreOp::kRemove:
      return {1, 0};
    case StoreOp::kCount:
    case StoreOp::kHello:
      return {0, 0};
    default:
      return {-1, 0};
  }
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

}  // namespace

std::optional<StoreAnswer> StoreTable::handle(uint64_t client, StoreRequest request) {
  const auto [keys, values] = needs(request.op);
  if ((keys >= 0 && request.keys.size() != static_cast<size_t>(keys)) ||
      request.values.size() != values)
    return refused("the request has a wrong number of keys or values");
  switch (request.op) {
    case StoreOp::kSet:
      return put(request.keys[0], std::move(request.values[0])).value_or(StoreAnswer());
    case StoreOp::kAppend: {
      const auto found = values_.find(request.keys[0]);
      Value whole = found == values_.end() ? Value() : found->second;
      std::ranges::copy(request.values[0], std::back_inserter(whole));
      return put(request.keys[0], std::move(whole)).value_or(StoreAnswer());
    }
    case StoreOp::kGet:
      return get(request.keys);
    case StoreOp::kAdd:
      return add(request.keys[0], request.number);
    case StoreOp::kCompareSet:
      return compare_set(request.keys[0], request.values[0], request.values[1]);
    case StoreOp::kRemove:
      return remove(request.keys[0]);
    case StoreOp::kCheck:
      return StoreAnswer{.number = has_all(request.keys)};
    case StoreOp::kCount:
      return StoreAnswer{.number = static_cast<int64_t>(values_.size())};
    case StoreOp::kWait:
      return wait(client, request.keys);
    case StoreOp::kHello:
      break;
  }
  return refused("the request is out of place");
}

std::optional<StoreAnswer> StoreTable::put(const std::string& key, Value value) {
  if (value.size() > kMaxStoreValue)
    return refused("a value may have " + std::to_string(kMaxStoreValue >> 20) + " MiB at most");
  const auto found = values_.find(key);
  const size_t before = found == values_.end() ? 0 : key.size() + found->second.size();
  const size_t after = bytes_ - before + key.size() + value.size();
  if (after > kMaxBytes || (found == values_.end() && values_.size() == kMaxKeys))
    return refused("the store is full");
  values_.insert_or_assign(key, std::move(value));
  bytes_ = after;
  const auto waiting = waiters_.find(key);
  if (waiting == waiters_.end()) return std::nullopt;
  for (const uint64_t client : std::set(waiting->second)) {
    end_wait(client, key);
    if (!waiting_.contains(client)) ready_.push_back(client);
  }
  return std::nullopt;
}

StoreAnswer StoreTable::get(const std::vector<std::string>& keys) const {
  StoreAnswer out;
  size_t bytes = 0;
  for (const std::string& key : keys) {
    const auto found = values_.find(key);
    if (found == values_.end()) return {.status = Status::kMissing};
    bytes += sizeof(uint32_t) + found->second.size();
    if (bytes > kMaxStoreMessage - kMaxStoreValue / 2)
      return refused("the values are too large for one answer");
    out.values.push_back(found->second);
  }
  return out;
}

// The sum is a decimal text, as in c10d's stores.
StoreAnswer StoreTable::add(const std::string& key, int64_t amount) {
  int64_t sum = 0;
  if (const auto found = values_.find(key); found != values_.end()) {
    const char* const begin = reinterpret_cast<const char*>(found->second.data());
    const char* const end = begin + found->second.size();
    const auto parsed = std::from_chars(begin, end, sum);
    if (parsed.ec != std::errc() || parsed.ptr != end)
      return refused("the value to add to is no number");
  }
  if (__builtin_add_overflow(sum, amount, &sum)) return refused("the sum is too large");
  return put(key, bytes_of(std::to_string(sum))).value_or(StoreAnswer{.number = sum});
}

// "" stands for a missing key, and what a missing key is not equal to comes back, as in c10d's
// stores.
StoreAnswer StoreTable::compare_set(const std::string& key, const Value& expected,
                                    const Value& desired) {
  const auto found = values_.find(key);
  if (found != values_.end() && found->second != expected) return {.values = {found->second}};
  if (found == values_.end() && !expected.empty()) return {.values = {expected}};
  return put(key, desired).value_or(StoreAnswer{.values = {desired}});
}

StoreAnswer StoreTable::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return {};
  bytes_ -= key.size() + found->second.size();
  values_.erase(found);
  return {.number = 1};
}

bool StoreTable::has_all(const std::vector<std::string>& keys) const {
  return std::ranges::all_of(keys,
                             [this](const std::string& key) { return values_.contains(key); });
}

std::optional<StoreAnswer> StoreTable::wait(uint64_t client, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (values_.contains(key) || !waiting_[client].insert(key).second) continue;
    waiters_[key].insert(client);
    wait_bytes_ += key.size() + kWaitCost;
    if (wait_bytes_ <= kMaxWaitBytes) continue;
    end_wait(client);
    return refused("too many keys are waited for");
  }
  if (waiting_.contains(client)) return std::nullopt;
  return StoreAnswer();
}

void StoreTable::end_wait(uint64_t client) {
  for (auto found = waiting_.find(client); found != waiting_.end(); found = waiting_.find(client))
    end_wait(client, std::string(*found->second.begin()));
}

void StoreTable::end_wait(uint64_t client, const std::string& key) {
  const auto found = waiting_.find(client);
  if (found == waiting_.end() || found->second.erase(key) == 0) return;
  wait_bytes_ -= key.size() + kWaitCost;
  if (found->second.empty()) waiting_.erase(found);
  const auto waiters = waiters_.find(key);
  if (waiters == waiters_.end()) return;
  waiters->second.erase(client);
  if (waiters->second.empty()) waiters_.erase(waiters);
}

}  // namespace ringdist
