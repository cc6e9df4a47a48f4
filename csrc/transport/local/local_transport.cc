#include "transport/local/local_transport.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "base/check.h"
#include "base/thread_annotations.h"
#include "os/epoll.h"
#include "transport/staging_pool.h"

namespace ringdist {
namespace {

constexpr size_t kStagingBuffers = 16;

// A message on its way. It owns copies of header and payload, so each send ends at once.
struct QueuedMessage {
  ContextId from;
  uint64_t place;  // number in the order of all sends to this inbox
  TimePoint due;
  std::vector<std::byte> header;
  std::vector<std::byte> payload;
};

// The inbox of one Context. It has a queue per sender, so that messages of a pair stay in order
// whatever their delays. Its mutex is a leaf.
struct Inbox {
  std::mutex mutex;
  std::map<ContextId, std::deque<QueuedMessage>> queues RINGDIST_GUARDED_BY(mutex);
  uint64_t sent RINGDIST_GUARDED_BY(mutex) = 0;
  std::mt19937_64 random RINGDIST_GUARDED_BY(mutex);
  bool closed RINGDIST_GUARDED_BY(mutex) = false;
  explicit Inbox(EventFd event_fd) : event(std::move(event_fd)) {}
  bool holds_any_of(ContextId sender) {
    std::lock_guard lock(mutex);
    const auto it = queues.find(sender);
    return it != queues.end() && !it->second.empty();
  }
  const EventFd event;
};

}  // namespace

// The inboxes of all Contexts of a test. Lock order: mutex_, then that of an Inbox.
class LocalNetwork {
 public:
  explicit LocalNetwork(const LocalOptions& options) : options_(options) {}

  // Creates the inbox of a Context; replaces a former one of the same id. Its random numbers depend
  // on the seed and on how many inboxes there are.
  Result<std::shared_ptr<Inbox>> open(ContextId id) {
    auto event = EventFd::create();
    if (!event.ok()) return event.error();
    auto inbox = std::make_shared<Inbox>(std::move(event.value()));
    std::lock_guard lock(mutex_);
    inbox->random.seed(options_.seed * 0x9e3779b97f4a7c15ull + inboxes_.size());
    inboxes_[id] = inbox;
    return inbox;
  }

  // Returns the inbox of a Context, or null.
  std::shared_ptr<Inbox> find(ContextId id) {
    std::lock_guard lock(mutex_);
    auto it = inboxes_.find(id);
    return it == inboxes_.end() ? nullptr : it->second;
  }

  // Returns true if any inbox has an undelivered message of that sender.
  bool holds_any_of(ContextId sender) {
    std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        inboxes_, [sender](const auto& entry) { return entry.second->holds_any_of(sender); });
  }

  const LocalOptions& options() const { return options_; }

 private:
  const LocalOptions options_;
  std::mutex mutex_;
  std::map<ContextId, std::shared_ptr<Inbox>> inboxes_ RINGDIST_GUARDED_BY(mutex_);
};

namespace {

// The transport of one Context. Each send copies the message into the receiver's inbox and ends at
// once.
class LocalTransport final : public Transport {
 public:
  LocalTransport(const TransportConfig& config, std::shared_ptr<Inbox> inbox,
                 TransportDelegate& receiver)
      : id_(config.context_id),
        max_payload_(config.max_payload),
        network_(config.local_network),
        inbox_(std::move(inbox)),
        receiver_(receiver),
        staging_(max_payload_, kStagingBuffers) {}
  ~LocalTransport() override { close(); }

  std::string_view name() const override { return "local"; }
  size_t max_payload() const override { return max_payload_; }
  std::vector<std::byte> address() const override { return {}; }
  Error add_peer(ContextId, ConstBytes) override { return {}; }
  bool reaches(ContextId peer) const override { return network_->find(peer) != nullptr; }

  void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) override {
    receiver_.end_send(send_id, post(peer, header, payload));
  }

  std::optional<Bytes> reserve(size_t bytes) override { return staging_.take(bytes); }

  void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) override {
    for (const auto& out : to) send(out.peer, out.header, reserved.first(used), out.send_id);
    staging_.release(reserved.data());
  }

  bool progress() override {
    bool any = false;
    inbox_->event.drain();
    while (auto parcel = take_one()) {
      receiver_.on_message(parcel->from, parcel->header, parcel->payload);
      any = true;
    }
    report_lost();
    return any;
  }

  int event_fd() const override { return inbox_->event.get(); }
  // Only messages that are due count; due() gives the time of the others.
  bool arm() override {
    std::lock_guard lock(inbox_->mutex);
    const TimePoint now = Clock::now();
    for (const auto& [from, queue] : inbox_->queues)
      if (!queue.empty() && queue.front().due <= now) return false;
    return true;
  }
  std::optional<TimePoint> due() const override {
    std::lock_guard lock(inbox_->mutex);
    std::optional<TimePoint> first;
    for (const auto& [from, queue] : inbox_->queues)
      if (!queue.empty() && (!first || queue.front().due < *first)) first = queue.front().due;
    return first;
  }

  bool drained(ContextId peer) override { return !inbox_->holds_any_of(peer); }
  // Later sends to the peer fail. Messages that it has sent are still delivered.
  void drop_peer(ContextId peer) override { dropped_.insert(peer); }
  void begin_flush() override {}
  bool flushed() const override { return !network_->holds_any_of(id_); }
  void close() override {
    std::lock_guard lock(inbox_->mutex);
    inbox_->closed = true;
    inbox_->queues.clear();
  }

 private:
  // Puts a message into the inbox of `peer`. Returns kPeerLost if the peer has closed, was dropped
  // or does not exist. The due time never falls below that of the pair's previous message.
  Error post(ContextId peer, ConstBytes header, ConstBytes payload) {
    check(header.size() <= kMaxHeaderBytes && payload.size() <= max_payload_, "message too large");
    const LocalOptions& options = network_->options();
    if (options.tap) options.tap(header, payload);
    auto inbox = dropped_.contains(peer) ? nullptr : network_->find(peer);
    if (!inbox) return lost(peer);
    std::lock_guard lock(inbox->mutex);
    if (inbox->closed) return lost(peer);
    auto& queue = inbox->queues[id_];
    QueuedMessage parcel{id_,
                         inbox->sent++,
                         options.held ? TimePoint::max() : Clock::now(),
                         {header.begin(), header.end()},
                         {payload.begin(), payload.end()}};
    const auto limit = options.held ? 0 : options.max_delay.count();
    if (limit > 0) parcel.due += Duration(inbox->random() % static_cast<uint64_t>(limit));
    if (!queue.empty()) parcel.due = std::max(parcel.due, queue.back().due);
    queue.push_back(std::move(parcel));
    inbox->event.signal();
    return {};
  }

  // Notes a lost peer for report_lost() and returns the error of the send.
  Error lost(ContextId peer) {
    newly_lost_.insert(peer);
    return Error(ErrorKind::kPeerLost, "the peer's Context is closed");
  }

  // Reports the peers that sends have found to be lost. Called by progress().
  void report_lost() {
    for (ContextId peer : std::exchange(newly_lost_, {}))
      receiver_.on_connection_lost(name(), peer,
                                   Error(ErrorKind::kPeerLost, "the peer's Context is closed"));
  }

  // Takes the next message. In a held network it is the oldest one. Otherwise it is the first of a
  // random sender among those with a due message.
  std::optional<QueuedMessage> take_one() {
    std::lock_guard lock(inbox_->mutex);
    const TimePoint now = Clock::now();
    std::vector<std::deque<QueuedMessage>*> ready;
    for (auto& [from, queue] : inbox_->queues)
      if (!queue.empty() && queue.front().due <= now) ready.push_back(&queue);
    if (ready.empty()) return std::nullopt;
    const auto place = [](const auto* queue) { return queue->front().place; };
    auto& queue = network_->options().held ? **std::ranges::min_element(ready, {}, place)
                                           : *ready[inbox_->random() % ready.size()];
    QueuedMessage parcel = std::move(queue.front());
    queue.pop_front();
    return parcel;
  }

  const ContextId id_;
  const size_t max_payload_;
  const std::shared_ptr<LocalNetwork> network_;
  const std::shared_ptr<Inbox> inbox_;
  TransportDelegate& receiver_;
  StagingPool staging_;
  std::set<ContextId> dropped_;
  std::set<ContextId> newly_lost_;
};

}  // namespace

std::shared_ptr<LocalNetwork> make_local_network(const LocalOptions& options) {
  return std::make_shared<LocalNetwork>(options);
}

size_t let_through(LocalNetwork& network, ContextId to) {
  const auto inbox = network.find(to);
  if (!inbox) return 0;
  std::lock_guard lock(inbox->mutex);
  size_t out = 0;
  for (auto& [from, queue] : inbox->queues)
    for (QueuedMessage& parcel : queue) {
      if (parcel.due != TimePoint::max()) continue;
      parcel.due = Clock::now();
      ++out;
    }
  inbox->event.signal();
  return out;
}

Error local_viable(const TransportConfig& config) {
  if (config.local_network) return {};
  return Error(ErrorKind::kNotSupported, "connects threads of one process only: for tests");
}

Result<std::unique_ptr<Transport>> local_create(const TransportConfig& config,
                                                TransportDelegate& receiver) {
  if (Error error = local_viable(config)) return error;
  auto inbox = config.local_network->open(config.context_id);
  if (!inbox.ok()) return inbox.error();
  return std::unique_ptr<Transport>(
      std::make_unique<LocalTransport>(config, std::move(inbox.value()), receiver));
}

}  // namespace ringdist
