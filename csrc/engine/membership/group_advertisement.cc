#include "engine/membership/group_advertisement.h"

#include <algorithm>

#include "base/describe.h"
#include "base/serialize.h"
#include "control/control_history.h"

namespace ringdist {
namespace {

// Bound on what decode() reads, since the bytes of a store cannot be trusted.
constexpr uint32_t kMostMembers = 1 << 20;
constexpr size_t kMostAdvertised = 4096;  // bytes of a text in it

}  // namespace

GroupAdvertisement::Member GroupAdvertisement::Member::of(const ControlMember& process) {
  return {process.context_id, process.unix_name, process.tcp_address,
          describe_process(process.pid, process.host_name)};
}

GroupAdvertisement::Member GroupAdvertisement::Member::of(const RankInfo& process) {
  return {process.context_id, process.unix_name, process.tcp_address, process.where()};
}

std::vector<std::byte> GroupAdvertisement::encode() const {
  Writer out;
  out.put_bytes(first.encode()).put(group_id).put(generation).put_string(name);
  out.put(static_cast<int64_t>(timeout.count())).put_string(job).put_string(note).put(most);
  out.put(static_cast<uint32_t>(members.size()));
  for (const Member& one : members)
    out.put(one.process)
        .put_string(one.unix_name)
        .put_string(one.tcp_address)
        .put_string(one.where);
  return out.take();
}

std::optional<GroupAdvertisement> GroupAdvertisement::decode(ConstBytes bytes,
                                                             uint16_t wire_version) {
  Reader in(bytes);
  auto entry = RankInfo::decode(in.get_bytes(), wire_version);
  if (!in.ok() || !entry) return std::nullopt;
  GroupAdvertisement out;
  out.first = std::move(*entry);
  if (out.first.wire_version != wire_version) return out;
  out.group_id = in.get<uint64_t>();
  out.generation = in.get<uint32_t>();
  out.name = in.get_text(kMostAdvertised);
  out.timeout = Milliseconds(in.get<int64_t>());
  out.job = in.get_string();
  out.note = in.get_text(kMostAdvertised);
  out.most = in.get<uint32_t>();
  for (auto n = std::min(in.get<uint32_t>(), kMostMembers); n > 0 && in.ok(); --n) {
    Member one;
    one.process = in.get<uint64_t>();
    one.unix_name = in.get_text(kMostAdvertised);
    one.tcp_address = in.get_text(kMostAdvertised);
    one.where = in.get_text(kMostAdvertised);
    out.members.push_back(std::move(one));
  }
  // A later time than now plus kLongest could not be represented.
  if (out.timeout < Milliseconds(0) || out.timeout > kLongest) return std::nullopt;
  if (!in.ended() || out.members.empty()) return std::nullopt;
  return out;
}

Error GroupAdvertisement::refusal(const RankInfo& newcomer) const {
  const auto differ = [&](const std::string& what, const std::string& its,
                          const std::string& ours) {
    return Error(ErrorKind::kMismatch, "this process cannot become a member: the group has " +
                                           what + " " + its + ", this process " + ours);
  };
  if (newcomer.wire_version != first.wire_version)
    return differ("wire version", std::to_string(first.wire_version),
                  std::to_string(newcomer.wire_version));
  if (newcomer.options_hash != first.options_hash)
    return differ("options", first.options, newcomer.options);
  if (newcomer.key != first.key)
    return differ("the key", first.key == 0 ? "(no key)" : format_id(first.key),
                  newcomer.key == 0 ? "(no key)" : format_id(newcomer.key));
  if (!newcomer.costs.file.empty() && newcomer.costs.constants != first.costs.constants)
    return differ("the constants of", first.costs.describe(),
                  "those of " + newcomer.costs.describe() + ", whose " +
                      describe_difference(first.costs.constants, newcomer.costs.constants));
  return {};
}

}  // namespace ringdist
