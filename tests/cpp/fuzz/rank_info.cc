// Fuzz target: the texts that a rank publishes in the store, or that a user passes on.
#include "rendezvous/rank_info.h"

#include "engine/bootstrap/handle_bootstrap.h"
#include "engine/membership/group_advertisement.h"
#include "engine/op/message.h"
#include "fuzz/target.h"
#include "transport/tcp/tcp_send_channel.h"

namespace ringdist::test {
namespace rank_info_fuzz {

RankInfo rank_info() {
  RankInfo out;
  out.wire_version = kWireVersion;
  out.context_id = 7;
  out.nonce = 77;
  out.size = 2;
  out.pid = 123;
  out.host_name = "host\x1b[2J";
  out.host_key = "key";
  out.unix_name = "@ringdist-123-7";
  out.tcp_address = "127.0.0.1:4000";
  out.options = "eager=4096";
  out.transports = {{"tcp", tcp::DataAddress{{}, {"127.0.0.1:4000"}}.encode()}, {"shm", {}}};
  out.costs.file = "costs.json";
  return out;
}

std::vector<std::byte> as_bytes(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

auto decode_info(ConstBytes bytes) { return RankInfo::decode(bytes, kWireVersion); }
auto decode_advertisement(ConstBytes bytes) {
  return GroupAdvertisement::decode(bytes, kWireVersion);
}
auto decode_handle(ConstBytes bytes) {
  return ProcessHandle::decode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Uses a rank info that was read as other ranks do.
void use(const RankInfo& info) {
  const std::vector<RankInfo> both{rank_info(), info};
  const Error error = compare_rank_infos(both, 0);
  check(!error || error.kind() == ErrorKind::kMismatch, "another kind of error");
  check(info.where().find('\x1b') == std::string::npos, "a control character");
  for (const auto& [name, address] : info.transports) (void)tcp::DataAddress::decode(address);
}

bool run(ConstBytes bytes) {
  FuzzInput input(bytes);
  const auto kind = input.byte();
  const auto body = input.rest();
  const auto encode = [](const auto& one) { return one.encode(); };
  switch (kind) {
    case 0:
      check_round_trip(body, decode_info, encode);
      if (const auto info = decode_info(body)) use(*info);
      return true;
    case 1:
      check_round_trip(body, decode_advertisement, encode);
      if (const auto found = decode_advertisement(body)) (void)found->refusal(rank_info());
      return true;
    case 2:
      check_round_trip(body, decode_handle, [](const auto& one) { return as_bytes(one.encode()); });
      if (const auto handle = decode_handle(body); handle.ok()) use(handle.value().entry);
      return true;
    case 3:
      check_round_trip(body, tcp::DataAddress::decode, encode);
      return true;
    default:
      return false;
  }
}

FuzzSeeds seeds() {
  GroupAdvertisement group;
  group.first = rank_info();
  group.name = "default";
  group.job = "job";
  group.note = "note";
  group.members = {GroupAdvertisement::Member::of(rank_info())};
  RankInfo old = rank_info();
  old.wire_version = 1;
  return {FuzzSeed().byte(0).rest(rank_info().encode()).take(),
          FuzzSeed().byte(0).rest(old.encode()).take(),
          FuzzSeed().byte(1).rest(group.encode()).take(),
          FuzzSeed().byte(2).rest(as_bytes(ProcessHandle{rank_info(), 5}.encode())).take(),
          FuzzSeed().byte(3).rest(rank_info().transports[0].second).take()};
}

}  // namespace rank_info_fuzz

const FuzzTarget kRankInfoFuzz{"rank_info",
                               "csrc/(rendezvous/rank_info|engine/membership/group_advertisement)",
                               rank_info_fuzz::run, rank_info_fuzz::seeds};

}  // namespace ringdist::test
