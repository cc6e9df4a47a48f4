#include "rendezvous/rendezvous.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "base/describe.h"
#include "base/serialize.h"
#include "os/pidfd.h"
#include "rendezvous/rank_info.h"
#include "rendezvous/sealed_store.h"

namespace ringdist {
namespace {

// Limits of the pauses between polls, and time to wait for the end of a process.
constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongestSleep = std::chrono::milliseconds(50);
constexpr auto kEndTime = std::chrono::seconds(5);
constexpr size_t kMostReason = 4096;  // bytes of a withdrawal's text that are shown

// Returns a text for these members, which is part of the keys. It is the same on all ranks.
std::string hash_of(const std::vector<int>& members) {
  uint64_t hash = 1469598103934665603ull;  // FNV-1a
  for (int member : members)
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ ((static_cast<uint32_t>(member) >> shift) & 0xff)) * 1099511628211ull;
  return std::to_string(members.size()) + "-" + std::to_string(hash);
}

std::string count_key(int rank, const std::vector<int>& members) {
  return "ringdist/" + hash_of(members) + "/n/" + std::to_string(rank);
}

// Counts a creation of the group and returns the prefix of its keys.
Result<std::string> begin(Store& store, int rank, const std::vector<int>& members) {
  auto incarnation = store.add(count_key(rank, members), 1);
  if (!incarnation.ok()) return incarnation.error();
  return "ringdist/" + hash_of(members) + "/" + std::to_string(incarnation.value()) + "/";
}

// Publishes a withdrawal for this creation of the group.
Error write_withdrawal(Store& store, const std::string& prefix, int rank, ErrorKind kind,
                       const std::string& why, bool process_ends) {
  const std::string name = prefix + std::string(kWithdrawalName);
  auto there = store.check({name});
  if (there.ok() && there.value()) return {};  // the first cause is kept
  Writer note;
  note.put<int32_t>(rank).put(kind).put(process_ends).put_string(why);
  return store.set(name, note.take());
}

}  // namespace

Error publish_failure(Store& store, int rank, const std::vector<int>& members, const Error& why) {
  const auto prefix = begin(store, rank, members);
  if (!prefix.ok()) return prefix.error();
  return write_withdrawal(store, prefix.value(), rank, why.kind(), why.message(), false);
}

Rendezvous::Rendezvous(std::shared_ptr<Store> store, int rank, std::vector<int> members,
                       std::shared_ptr<const TlsKey> key, bool compares_ranks,
                       const std::string& group)
    : store_(std::move(store)),
      rank_(rank),
      members_(std::move(members)),
      size_(static_cast<int>(members_.size())),
      ranks_(members_.size()),
      signing_(key && key->certificate() ? std::move(key) : nullptr),
      compares_ranks_(compares_ranks),
      scope_(group + '\n') {
  std::iota(ranks_.begin(), ranks_.end(), 0);
}

std::string Rendezvous::key(const std::string& what, int rank) const {
  return prefix_ + what + "/" + std::to_string(rank);
}

std::vector<std::string> Rendezvous::keys(const std::string& what,
                                          const std::vector<int>& ranks) const {
  std::vector<std::string> out;
  for (const int rank : ranks) out.push_back(key(what, rank));
  return out;
}

Error Rendezvous::publish(const RankInfo& mine) {
  mine_ = mine;
  auto prefix = begin(*store_, rank_, members_);
  if (!prefix.ok()) return prefix.error();
  prefix_ = prefix.value();
  return set("entry", mine.encode());
}

Error Rendezvous::set(const std::string& what, std::span<const std::byte> value) {
  keys_.push_back(key(what, rank_));
  if (!signing_) return store_->set(keys_.back(), value);
  return store_->set(keys_.back(), signing_->seal(value, scope_ + keys_.back()));
}

void Rendezvous::remove_keys(bool only_once) {
  for (const std::string& one : keys_) (void)store_->remove(one);
  if (only_once) (void)store_->remove(count_key(rank_, members_));
}

Error Rendezvous::publish_withdrawal(ErrorKind kind, const std::string& why, bool process_ends) {
  if (prefix_.empty()) return {};  // no rank has seen this one yet
  return write_withdrawal(*store_, prefix_, rank_, kind, why, process_ends);
}

Error Rendezvous::find_withdrawal(const CancellableDeadline& deadline) {
  const auto note = store_->find(prefix_ + std::string(kWithdrawalName));
  if (!note.ok() || !note.value()) return note.error();
  Reader in(*note.value());
  const int rank = in.get<int32_t>();
  if (rank == rank_) return {};  // this rank's own withdrawal is for the others
  const auto kind = in.get<ErrorKind>();
  const bool process_ends = in.get_bool();
  std::optional<RankInfo> entry;  // none if that rank could not create the group
  const std::string name = key("entry", rank);
  const bool is_member = rank >= 0 && rank < size_;
  if (const auto there = store_->check({name}); is_member && there.ok() && there.value())
    if (const auto bytes = read({name}, {rank}); bytes.ok())
      entry = RankInfo::decode(bytes.value().front(), mine_.wire_version);
  if (process_ends && entry && entry->host_key == mine_.host_key) await_end(entry->pid, deadline);
  return Error(kind > ErrorKind::kProtocol ? ErrorKind::kPeerLost : kind,
               describe_rank(rank, entry ? entry->where() : "") +
                   " ended the group before its first operation: " + in.get_text(kMostReason))
      .blame(rank);
}

// The launcher of both processes should see that one ended first, because that is the cause.
void Rendezvous::await_end(int pid, const CancellableDeadline& deadline) {
  const auto process = open_pidfd(pid);
  const TimePoint until = Clock::now() + kEndTime;
  while (process.ok() && !has_exited(process.value()) && Clock::now() < until &&
         !deadline.expired_or_cancelled(Clock::now()))
    std::this_thread::sleep_for(kLongestSleep);
}

Result<std::vector<std::vector<std::byte>>> Rendezvous::await_values(
    const std::string& name, const std::vector<int>& ranks, const std::string& what,
    const CancellableDeadline& deadline, const std::function<Error()>& given_up) {
  const std::vector<std::string> keys = this->keys(name, ranks);
  const TimePoint begun = Clock::now();
  for (;;) {
    if (deadline.cancelled) return Error(ErrorKind::kAborted, "the group was destroyed");
    auto there = store_->check(keys);
    if (there.ok()) {
      if (Error error = find_withdrawal(deadline)) return error;
      if (there.value()) return read(keys, ranks);
    }
    if (const Error error = given_up ? given_up() : Error()) return error;
    if (!there.ok()) return there.error();
    // The pause grows with the wait, so that a wait takes at most a quarter longer than necessary.
    const TimePoint now = Clock::now();
    const auto pause = std::clamp<Duration>((now - begun) / 4, kFirstPause, kLongestSleep);
    if (now + pause > deadline.time.load()) break;
    std::this_thread::sleep_for(pause);
  }
  std::string names;
  std::vector<int> missing;
  for (size_t i = 0; i < keys.size(); ++i) {
    auto one = store_->check({keys[i]});
    if (!one.ok() || one.value()) continue;
    names += (names.empty() ? "" : ", ") + std::to_string(ranks[i]);
    missing.push_back(ranks[i]);
  }
  return Error(ErrorKind::kTimeout, "Timed out waiting for " + what + " of rank " + names)
      .blame(std::move(missing));
}

Result<std::vector<std::vector<std::byte>>> Rendezvous::read(const std::vector<std::string>& keys,
                                                             const std::vector<int>& ranks) {
  static const std::string kOther = " has another key or authority than ";
  auto out = store_->multi_get(keys);
  if (!out.ok() && !out.error().ranks().empty()) {
    const auto first = static_cast<size_t>(out.error().ranks().front());
    return keys_differ(ranks[first], kOther, ", or none");
  }
  for (size_t i = 0; out.ok() && signing_ && i < keys.size(); ++i) {
    auto opened = signing_->unseal(out.value()[i], scope_ + keys[i], TlsKey::Expired::kRefused);
    if (!opened) return keys_differ(ranks[i], kOther, ", or none");
    if (Error error = check_signer(ranks[i], *opened->signer)) return error;
    out.value()[i] = std::move(opened->value);
  }
  return out;
}

Error Rendezvous::check_signer(int rank, const Certificate& signer) {
  const int global_rank = members_[static_cast<size_t>(rank)];
  if (compares_ranks_ && !signer.allows(global_rank))
    return wrong_signer(rank, signer, "is not for global rank " + std::to_string(global_rank));
  const auto [known, is_new] = signers_.emplace(rank, signer);
  if (is_new || known->second.id_bits == signer.id_bits) return {};
  return wrong_signer(rank, signer, "is not the one that the rank has used before");
}

Error Rendezvous::wrong_signer(int rank, const Certificate& signer, const std::string& why) {
  return Error(ErrorKind::kMismatch, "ranks cannot form a group: a value of rank " +
                                         std::to_string(rank) + " was signed with " +
                                         signer.describe() + ", which " + why)
      .blame(rank);
}

Error Rendezvous::find_lost(const std::vector<RankInfo>& entries, const std::vector<int>& ranks,
                            const std::function<Error(const RankInfo&)>& lost) {
  for (const int rank : ranks)
    if (Error error = lost(entries[rank]))
      return error.prefixed(describe_rank(rank, entries[rank].where()) + " is lost: ").blame(rank);
  return {};
}

Error Rendezvous::exchange(const RankInfo& mine, std::vector<RankInfo>& entries,
                           const std::function<Error(const RankInfo&)>& lost,
                           const CancellableDeadline& deadline) {
  if (Error error = set("reach", mine.encode())) return error;
  const auto given_up = [&] { return find_lost(entries, ranks_, lost); };
  auto values = await_values("reach", ranks_, "the addresses", deadline, given_up);
  if (!values.ok()) return values.error();
  for (int rank = 0; rank < size_; ++rank) {
    auto entry = RankInfo::decode(values.value()[rank], mine_.wire_version);
    if (!entry)
      return Error(ErrorKind::kProtocol, "the store's addresses of rank " + std::to_string(rank) +
                                             " are not of this version")
          .blame(rank);
    entries[rank].tcp_address = std::move(entry->tcp_address);
    entries[rank].transports = std::move(entry->transports);
  }
  return {};
}

Error Rendezvous::keys_differ(int rank, const std::string& has, const std::string& other) const {
  return Error(ErrorKind::kMismatch, "ranks cannot form a group: rank " + std::to_string(rank) +
                                         has + "rank " + std::to_string(rank_) + other + "; " +
                                         std::string(kSameCredentials))
      .blame(rank);
}

Result<std::vector<RankInfo>> Rendezvous::collect(const CancellableDeadline& deadline,
                                                  const std::function<Error()>& given_up) {
  auto values = await_values("entry", ranks_, "the group's creation", deadline, given_up);
  if (!values.ok() && !deadline.cancelled) {
    // A rank may have withdrawn after all entries were published. Survivors need the entries to
    // continue without it; the next wait finds the withdrawal.
    const auto entries = keys("entry", ranks_);
    if (const auto there = store_->check(entries); there.ok() && there.value())
      values = read(entries, ranks_);
  }
  if (!values.ok()) return values.error();
  std::vector<RankInfo> out;
  for (int rank = 0; rank < size_; ++rank) {
    if (is_sealed(values.value()[rank]))
      return keys_differ(rank, " has a key or certificate, ", " has none");
    auto entry = RankInfo::decode(values.value()[rank], mine_.wire_version);
    if (!entry)
      return Error(ErrorKind::kProtocol,
                   "the store's entry of rank " + std::to_string(rank) + " is not of this version");
    if (signing_ && !signers_.at(rank).fits(entry->context_id))
      return wrong_signer(rank, signers_.at(rank), "is not that of the process it names");
    out.push_back(std::move(*entry));
  }
  if (Error error = compare_rank_infos(out, rank_)) return error;
  return out;
}

Result<Topology> Rendezvous::agree_on_hosts(const std::vector<RankInfo>& entries,
                                            const std::function<Error(const RankInfo&)>& prove,
                                            const std::function<Error(const RankInfo&)>& lost,
                                            const CancellableDeadline& deadline) {
  std::map<std::string, std::vector<int>> claims;
  for (int rank = 0; rank < size_; ++rank) claims[entries[rank].host_key].push_back(rank);
  std::vector<int> askers;
  for (const auto& [host_key, ranks] : claims) {
    askers.push_back(ranks[0]);
    // The proof makes the control plane watch the process.
    if (ranks[0] != rank_ && host_key == mine_.host_key) (void)prove(entries[ranks[0]]);
    if (ranks[0] != rank_) continue;
    Writer answered;
    for (int rank : ranks)
      if (rank == rank_ || entries[rank].context_id == mine_.context_id || !prove(entries[rank]))
        answered.put<int32_t>(rank);
    if (Error error = set("host", answered.take())) return error;
  }
  const auto given_up = [&] { return find_lost(entries, askers, lost); };
  auto lists = await_values("host", askers, "the group's creation", deadline, given_up);
  return lists.ok() ? topology_of(lists.value()) : lists.error();
}

Result<Topology> Rendezvous::find_hosts(const std::vector<RankInfo>& entries) {
  std::map<std::string, std::string> keys;
  for (int rank = 0; rank < size_; ++rank) keys.emplace(entries[rank].host_key, key("host", rank));
  std::vector<std::string> lists;
  for (const auto& [host_key, list] : keys) lists.push_back(list);
  const auto there = store_->check(lists);
  if (!there.ok()) return there.error();
  if (!there.value()) return Error(ErrorKind::kTimeout, "not all hosts are known");
  const auto values = store_->multi_get(lists);
  return values.ok() ? topology_of(values.value()) : values.error();
}

Result<Topology> Rendezvous::topology_of(const std::vector<std::vector<std::byte>>& lists) const {
  std::vector<std::vector<int>> hosts;
  std::vector<bool> placed(size_, false);
  for (const auto& list : lists) {
    Reader in(list);
    hosts.emplace_back();
    for (size_t n = list.size() / sizeof(int32_t); n > 0; --n) {
      const int rank = in.get<int32_t>();
      if (rank < 0 || rank >= size_ || placed[rank])
        return Error(ErrorKind::kProtocol, "the store's list of a host's ranks makes no sense");
      placed[rank] = true;
      hosts.back().push_back(rank);
    }
  }
  for (int rank = 0; rank < size_; ++rank)
    if (!placed[rank]) hosts.push_back({rank});
  return Topology::from_hosts(std::move(hosts), size_);
}

}  // namespace ringdist
