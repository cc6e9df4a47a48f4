#include "negotiation/order/negotiator.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// Adds parent and children of `rank` to `out`. `ranks` is used as a heap with its first rank as the
// root.
void link(const std::vector<int>& ranks, int rank, SpanningTree& out) {
  const auto found = std::ranges::find(ranks, rank);
  if (found == ranks.end()) return;
  const auto at = static_cast<size_t>(found - ranks.begin());
  const size_t first = at * SpanningTree::kChildren + 1;
  for (size_t child = first; child < std::min(first + SpanningTree::kChildren, ranks.size());
       ++child)
    out.children.push_back(ranks[child]);
  if (at > 0) out.parent = ranks[(at - 1) / SpanningTree::kChildren];
}

std::string words_of(const ReadyCall& one) {
  return "rank " + std::to_string(one.rank) + " called " + one.call.description.words;
}

Error senseless(const std::string& what) {
  return {ErrorKind::kProtocol, "ringdist: negotiation: " + what};
}

}  // namespace

SpanningTree SpanningTree::of(const Topology& topology, int rank) {
  std::vector<int> first_of_hosts;
  for (const auto& host : topology.hosts) first_of_hosts.push_back(host.front());
  SpanningTree out;
  link(topology.hosts[topology.host_of[rank]], rank, out);
  link(first_of_hosts, rank, out);
  return out;
}

bool ReadyCount::add(size_t member, ReadyCall call) {
  if (is_ready_[member]) return false;
  is_ready_[member] = true;
  if (std::exchange(is_empty_, false)) {
    call_ = std::move(call);
    return true;
  }
  call_.last = call.last;
  if (call_.conflict.empty()) {
    if (!call.conflict.empty())
      call_.conflict = std::move(call.conflict);
    else if (!(call.call.description == call_.call.description))
      call_.conflict = disagreement(call);
  }
  if (!call_.absent) call_.absent = call.absent;
  std::ranges::move(call.extras, std::back_inserter(call_.extras));
  return true;
}

std::string ReadyCount::disagreement(const ReadyCall& call) const {
  const CallDescription &ours = call_.call.description, &other = call.call.description;
  const std::string both = words_of(call_) + ", " + words_of(call);
  return ours.words == other.words ? both + ": " + describe_difference_(ours, other) : both;
}

bool ReadyCount::is_complete(const std::vector<bool>& excused) const {
  for (size_t member = 0; member < is_ready_.size(); ++member)
    if (!is_ready_[member] && !excused[member]) return false;
  return true;
}

std::optional<size_t> ReadyCount::missing() const {
  const auto found = std::ranges::find(is_ready_, false);
  if (found == is_ready_.end()) return std::nullopt;
  return static_cast<size_t>(found - is_ready_.begin());
}

Negotiator::Negotiator(NegotiatorDelegate& delegate, const Topology& topology, int rank,
                       NegotiatorOptions options)
    : delegate_(delegate),
      tree_(SpanningTree::of(topology, rank)),
      rank_(rank),
      size_(static_cast<int>(topology.host_of.size())),
      options_(options),
      table_(options.cache_capacity),
      joined_(tree_.children.size() + 1) {
  check(options_.batches_in_flight > 0, "one batch at least is on its way");
  for (const int child : tree_.children) children_.push_back({child});
}

void Negotiator::call(const std::string& name, CallDescription description,
                      std::optional<std::vector<int64_t>> extra) {
  check(!joined_[self()], "a rank that has joined makes no calls");
  check(mine_.emplace(name, position_).second, "a name is of one call at a time");
  ReadyCall mine;
  mine.call.name = name;
  mine.rank = mine.last = rank_;
  const ResponseCache::CachedCallPtr known = table_.find(name, description);
  mine.call.description = std::move(description);
  if (extra) {
    const bool is_known =
        known && known->extras.contains(rank_) && known->extras.at(rank_) == *extra;
    if (!is_known) mine.extras.push_back({rank_, std::move(*extra)});
  }
  (void)add(self(), std::move(mine));
}

void Negotiator::join() { have_joined(self(), rank_); }

Error Negotiator::receive(int rank, ConstBytes message) {
  if (rank == tree_.parent) return receive_down(message);
  const auto child = std::ranges::find(children_, rank, &Child::rank);
  if (child == children_.end())
    return senseless("rank " + std::to_string(rank) + " is no neighbour");
  return receive_up(*child, message);
}

Error Negotiator::receive_up(Child& child, ConstBytes bytes) {
  auto decoded = ReadyMessage::decode(bytes);
  if (!decoded.ok()) return decoded.error();
  ReadyMessage& message = decoded.value();
  ++child.received;
  const auto member = static_cast<size_t>(&child - children_.data());
  if (message.joined && !is_rank(*message.joined)) return senseless("who has joined is no rank");
  for (ReadyCall& call : message.ready) {
    if (!makes_sense(call)) return senseless("a child is ready for what is no call");
    if (call.call.id != 0) {
      const ResponseCache::CachedCallPtr entry = table_.find(call.call.id);
      if (!entry) return senseless("a child names call " + std::to_string(call.call.id));
      call.call = {0, entry->name, entry->description};
    }
    if (!add(member, std::move(call))) return senseless("a child is ready for a call twice");
  }
  child.seen = message.seen;
  table_.forget(seen());
  if (message.joined) have_joined(member, *message.joined);
  return {};
}

Error Negotiator::receive_down(ConstBytes bytes) {
  auto decoded = DecisionMessage::decode(bytes);
  if (!decoded.ok()) return decoded.error();
  auto& [decision, received] = decoded.value();
  unseen_ = sent_ - received;
  if (unseen_ > kWindow) return senseless("the parent has seen more messages than were sent");
  if (decision.position == 0) return {};
  if (decision.position != position_ + 1)
    return senseless("decision " + std::to_string(decision.position) + " after " +
                     std::to_string(position_));
  tell_children(decision);
  return accept(decision);
}

bool Negotiator::add(size_t member, ReadyCall call) {
  const std::string name = call.call.name;
  const auto describe_difference = [this](const auto& one, const auto& other) {
    return delegate_.describe_difference(one, other);
  };
  ReadyCount& ready = tallies_.try_emplace(name, joined_.size(), describe_difference).first->second;
  if (!ready.add(member, std::move(call))) return false;
  if (ready.is_complete(joined_)) complete(name);
  return true;
}

void Negotiator::complete(const std::string& name) {
  ReadyCount ready = std::move(tallies_.extract(name).mapped());
  const auto missing = ready.missing();
  ReadyCall call = ready.take();
  if (missing && !call.absent) call.absent = *missing == self() ? rank_ : children_[*missing].rank;
  if (!is_root())
    next_.ready.push_back(std::move(call));
  else if (!call.conflict.empty())
    failed_.push_back({name, std::move(call.conflict)});
  else if (call.absent && call.call.description.needs_all)
    failed_.push_back({name, "rank " + std::to_string(*call.absent) + " has joined, and " +
                                 call.call.description.words + " needs all ranks"});
  else
    ready_.push_back(std::move(call));
}

void Negotiator::have_joined(size_t member, int last) {
  joined_[member] = true;
  std::vector<std::string> complete_now;
  for (const auto& [name, ready] : tallies_)
    if (ready.is_complete(joined_)) complete_now.push_back(name);
  for (const std::string& name : complete_now) complete(name);
  if (std::ranges::all_of(joined_, [](bool one) { return one; })) last_joined_ = last;
}

// Called on all ranks except the root, which enters its decisions when it makes them.
Error Negotiator::accept(const DecisionMessage& decision) {
  for (const auto& calls : decision.batches) {
    std::vector<ResponseCache::AgreedCall> batch;
    for (const DecidedCall& call : calls) {
      batch.push_back({table_.decide(decision.position, call), call.last});
      if (!batch.back().entry)
        return senseless("a decision names call " + std::to_string(call.call.id));
    }
    run(batch);
  }
  end(decision);
  return {};
}

void Negotiator::end(const DecisionMessage& decision) {
  position_ = decision.position;
  for (const FailedCall& one : decision.failed) {
    mine_.erase(one.name);
    delegate_.fail(one.name, one.why);
  }
  table_.forget(seen());
  if (!decision.all_joined) return;
  joined_.assign(joined_.size(), false);
  delegate_.all_joined(*decision.all_joined);
}

void Negotiator::run(const std::vector<ResponseCache::AgreedCall>& batch) {
  for (const auto& call : batch) mine_.erase(call.entry->name);
  delegate_.run(batch);
}

void Negotiator::ran() {
  if (!is_root()) return;
  check(in_flight_ > 0, "a batch runs once");
  --in_flight_;
}

void Negotiator::tune(int64_t fusion_bytes, int batches_in_flight) {
  check(fusion_bytes >= 0 && batches_in_flight > 0, "one batch at least is on its way");
  options_.fusion_bytes = fusion_bytes;
  options_.batches_in_flight = batches_in_flight;
}

void Negotiator::flush() {
  if (is_root()) {
    decide();
  } else if (unseen_ < kWindow &&
             (!next_.ready.empty() || last_joined_ || seen() >= told_seen_ + kTellSeen)) {
    next_.seen = told_seen_ = seen();
    next_.joined = std::exchange(last_joined_, std::nullopt);
    for (ReadyCall& one : next_.ready) {
      const auto known = table_.find(one.call.name, one.call.description);
      if (known && one.conflict.empty()) one.call = {known->id, {}, {}};
    }
    ++sent_;
    ++unseen_;
    delegate_.send(tree_.parent, std::exchange(next_, {}).encode());
  }
  for (Child& child : children_)
    if (child.received - child.told >= kWindow / 2)
      delegate_.send(child.rank, DecisionMessage().encode(child.told = child.received));
}

void Negotiator::decide() {
  DecisionMessage decision;
  decision.position = position_ + 1;
  std::vector<std::vector<ResponseCache::AgreedCall>> batches;
  for (; !ready_.empty() && in_flight_ < options_.batches_in_flight; ++in_flight_) {
    auto& calls = decision.batches.emplace_back();
    auto& batch = batches.emplace_back();
    for (ReadyCall& call : next_batch())
      calls.push_back(enter(decision.position, std::move(call), batch));
  }
  decision.failed = std::exchange(failed_, {});
  if (ready_.empty()) decision.all_joined = std::exchange(last_joined_, std::nullopt);
  if (batches.empty() && decision.failed.empty() && !decision.all_joined) return;
  tell_children(decision);
  for (const auto& batch : batches) run(batch);
  end(decision);
}

// Returns the call that has been ready longest, and all calls that may be fused with it.
std::vector<ReadyCall> Negotiator::next_batch() {
  std::vector<ReadyCall> out;
  int64_t bytes = 0;
  const uint64_t kind = ready_.front().call.description.batch;
  std::deque<ReadyCall> left;
  for (ReadyCall& call : ready_) {
    const CallDescription& description = call.call.description;
    const bool goes_along = kind != 0 && description.batch == kind &&
                            description.bytes <= options_.fusion_bytes - bytes;
    if (!out.empty() && !goes_along) {
      left.push_back(std::move(call));
      continue;
    }
    bytes += description.bytes;
    out.push_back(std::move(call));
  }
  ready_ = std::move(left);
  return out;
}

DecidedCall Negotiator::enter(uint64_t position, ReadyCall call,
                              std::vector<ResponseCache::AgreedCall>& batch) {
  DecidedCall out;
  out.last = call.last;
  const auto known = table_.find(call.call.name, call.call.description);
  out.is_new = !known;
  out.call = std::move(call.call);
  out.call.id = known ? known->id : ++last_id_;
  // A rank that used an id which has been retired since has sent only the extras that changed.
  if (out.is_new)
    for (auto& [rank, values] : table_.last_extras(out.call.name, out.call.description))
      out.extras.push_back({rank, std::move(values)});
  std::ranges::move(call.extras, std::back_inserter(out.extras));
  batch.push_back({table_.decide(position, out), out.last});
  check(batch.back().entry != nullptr, "the root knows what it decides on");
  return out;
}

void Negotiator::tell_children(const DecisionMessage& decision) {
  for (Child& child : children_)
    delegate_.send(child.rank, decision.encode(child.told = child.received));
}

bool Negotiator::makes_sense(const ReadyCall& call) const {
  const auto is_of_a_rank = [this](const RankExtra& extra) { return is_rank(extra.rank); };
  return is_rank(call.rank) && is_rank(call.last) && (!call.absent || is_rank(*call.absent)) &&
         std::ranges::all_of(call.extras, is_of_a_rank) && call.call.description.bytes >= 0;
}

// A call that was made before a decision may be in a message that is still in flight. If it uses an
// id that this decision has retired, its receivers still need the entry.
uint64_t Negotiator::seen() const {
  uint64_t out = position_;
  for (const auto& [name, position] : mine_) out = std::min(out, position);
  for (const Child& child : children_) out = std::min(out, child.seen);
  return out;
}

}  // namespace ringdist
