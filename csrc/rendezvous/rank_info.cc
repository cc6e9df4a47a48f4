#include "rendezvous/rank_info.h"

#include <algorithm>
#include <map>

#include "base/describe.h"
#include "base/serialize.h"

namespace ringdist {
namespace {

constexpr size_t kMostInfoText = 4096;  // bytes of a text in it

// These functions serialize parts of a RankInfo.
void put(Writer& out, const TransportAddresses& addresses) {
  out.put(static_cast<uint32_t>(addresses.size()));
  for (const auto& [name, address] : addresses) out.put_string(name).put_bytes(address);
}

void put(Writer& out, const GroupCosts& costs) {
  for (const LinkCosts* link : {&costs.constants.inside, &costs.constants.between})
    for (const LinkConstant& one : link_constants()) out.put(one.get(*link));
  out.put_string(costs.file);
}

// Returns nothing for constants that no file may have. All ranks plan by them, and their sums must
// not overflow.
std::optional<GroupCosts> get_costs(Reader& in) {
  constexpr double kMost = 1e15;
  GroupCosts out;
  for (LinkCosts* link : {&out.constants.inside, &out.constants.between})
    for (const LinkConstant& one : link_constants()) {
      const auto value = in.get<double>();
      if (!(value >= 0 && value <= kMost)) return std::nullopt;  // not a number fails both
      one.set(*link, value);
    }
  out.file = in.get_text(kMostInfoText);
  return out;
}

TransportAddresses get_addresses(Reader& in) {
  TransportAddresses out;
  for (auto n = in.get<uint32_t>(); n > 0 && in.ok(); --n) {
    std::string name = in.get_string();
    out.emplace_back(std::move(name), in.get_bytes());
  }
  return out;
}

// Returns kMismatch if the two entries differ in the wire version, the size or the options.
Error compare(const RankInfo& mine, int rank, const RankInfo& theirs, int peer) {
  const auto differ = [&](const std::string& what, const std::string& a, const std::string& b) {
    return Error(ErrorKind::kMismatch, "ranks cannot form a group: rank " + std::to_string(rank) +
                                           " has " + what + " " + a + ", " +
                                           describe_rank(peer, theirs.where()) + " has " + b)
        .blame(peer);
  };
  if (mine.wire_version != theirs.wire_version)
    return differ("wire version", std::to_string(mine.wire_version),
                  std::to_string(theirs.wire_version));
  if (mine.size != theirs.size)
    return differ("group size", std::to_string(mine.size), std::to_string(theirs.size));
  if (mine.options_hash != theirs.options_hash)
    return differ("options", mine.options, theirs.options);
  return {};
}

// Compares the costs with those of rank 0, which apply to all. All ranks get the same result, so
// each reports the reason.
Error compare_costs(const std::vector<RankInfo>& entries) {
  const RankInfo& first = entries[0];
  for (size_t rank = 1; rank < entries.size(); ++rank) {
    const RankInfo& other = entries[rank];
    if (other.costs.file.empty() || other.costs.constants == first.costs.constants) continue;
    return Error(ErrorKind::kMismatch,
                 "ranks cannot form a group: " + describe_rank(0, first.where()) + " plans by " +
                     first.costs.describe() + ", " +
                     describe_rank(static_cast<int>(rank), other.where()) + " by " +
                     other.costs.describe() + ", whose " +
                     describe_difference(first.costs.constants, other.costs.constants) +
                     "; rank 0's count for all: give RINGDIST_COSTS a file with the same "
                     "constants, or none but on rank 0")
        .blame(static_cast<int>(rank));
  }
  return {};
}

// Compares the keys with the one that most ranks have. All ranks get the same result.
Error compare_keys(const std::vector<RankInfo>& entries) {
  const auto count = [&](const RankInfo& one) {
    return std::ranges::count(entries, one.key, &RankInfo::key);
  };
  const auto usual = std::ranges::max_element(entries, {}, count);
  const auto other =
      std::ranges::find_if(entries, [&](const RankInfo& one) { return one.key != usual->key; });
  if (other == entries.end()) return {};
  const auto name = [&](auto entry) {
    return describe_rank(static_cast<int>(entry - entries.begin()), entry->where());
  };
  const std::string has = other->key == 0   ? " has no key or certificate, "
                          : usual->key == 0 ? " has a key or certificate, "
                                            : " has another key or authority than ";
  return Error(ErrorKind::kMismatch, "ranks cannot form a group: " + name(other) + has +
                                         name(usual) +
                                         (other->key == 0   ? " has one"
                                          : usual->key == 0 ? " has none"
                                                            : "") +
                                         "; " + std::string(kSameCredentials))
      .blame(static_cast<int>(other - entries.begin()));
}

// With certificates, ids have 32 random bits. Ranks of one process have one id.
Error compare_ids(const std::vector<RankInfo>& entries) {
  std::map<uint64_t, int> ranks;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int rank = static_cast<int>(i);
    const auto [first, is_new] = ranks.emplace(entries[i].context_id, rank);
    const RankInfo& other = entries[static_cast<size_t>(first->second)];
    if (is_new || (other.pid == entries[i].pid && other.host_key == entries[i].host_key)) continue;
    return Error(ErrorKind::kMismatch,
                 "ranks cannot form a group: " + describe_rank(first->second, "") + " and " +
                     describe_rank(rank, entries[i].where()) +
                     " have drawn the same id: start them again")
        .blame(rank);
  }
  return {};
}

}  // namespace

std::vector<std::byte> RankInfo::encode() const {
  Writer out;
  out.put(wire_version).put(context_id).put(nonce).put(size).put(lanes).put(pid);
  out.put_string(host_name).put_string(host_key).put_string(unix_name).put_string(tcp_address);
  out.put(guessed);
  out.put(options_hash).put_string(options).put(key);
  put(out, transports);
  put(out, costs);
  return out.take();
}

std::optional<RankInfo> RankInfo::decode(ConstBytes bytes, uint16_t wire_version) {
  Reader in(bytes);
  RankInfo out;
  out.wire_version = in.get<uint16_t>();
  if (in.ok() && out.wire_version != wire_version) return out;
  out.context_id = in.get<uint64_t>();
  out.nonce = in.get<uint64_t>();
  out.size = in.get<int32_t>();
  out.lanes = in.get<int32_t>();
  out.pid = in.get<int32_t>();
  out.host_name = in.get_text(kMostInfoText);
  out.host_key = in.get_string();
  out.unix_name = in.get_text(kMostInfoText);
  out.tcp_address = in.get_text(kMostInfoText);
  out.guessed = in.get_bool();
  out.options_hash = in.get<uint64_t>();
  out.options = in.get_text(kMostInfoText);
  out.key = in.get<uint64_t>();
  out.transports = get_addresses(in);
  auto costs = get_costs(in);
  if (!in.ok() || !costs) return std::nullopt;
  out.costs = std::move(*costs);
  return out;
}

std::string RankInfo::where() const { return describe_process(pid, host_name); }

Error compare_rank_infos(const std::vector<RankInfo>& entries, int rank) {
  for (size_t peer = 0; peer < entries.size(); ++peer)
    if (Error error = compare(entries[static_cast<size_t>(rank)], rank, entries[peer],
                              static_cast<int>(peer)))
      return error;
  if (Error error = compare_ids(entries)) return error;
  if (Error error = compare_keys(entries)) return error;
  return compare_costs(entries);
}

}  // namespace ringdist
