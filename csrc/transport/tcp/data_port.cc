#include "transport/tcp/data_port.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>

#include "base/log.h"
#include "base/serialize.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr uint32_t kDataMagic = 0x64746452;  // "Rdtd"
constexpr uint32_t kDataVersion = 2;
constexpr Duration kLogRefusals = std::chrono::seconds(1);

// Compares in a time that does not depend on the bytes, so that nobody can guess them one by one.
bool are_equal(const DataSecret& a, const DataSecret& b) {
  std::byte different{0};
  for (size_t i = 0; i < a.size(); ++i) different |= a[i] ^ b[i];
  return different == std::byte{0};
}

}  // namespace

std::vector<std::byte> DataHello::frame() const {
  Writer body;
  body.put(kDataMagic).put(kDataVersion).put(from).put(to).put(channel).put(path).put(secret);
  const std::vector<std::byte> bytes = body.take();
  std::vector<std::byte> out =
      Writer().put(static_cast<uint32_t>(bytes.size())).put(kFrameType).take();
  out.insert(out.end(), bytes.begin(), bytes.end());
  return out;
}

std::optional<DataHello> DataHello::decode(ConstBytes body) {
  Reader in(body);
  const auto magic = in.get<uint32_t>();
  const auto version = in.get<uint32_t>();
  DataHello out;
  out.from = in.get<uint64_t>();
  out.to = in.get<uint64_t>();
  out.channel = in.get<uint32_t>();
  out.path = in.get<uint32_t>();
  out.secret = in.get<DataSecret>();
  if (!in.ended() || magic != kDataMagic || version != kDataVersion || out.channel == 0 ||
      out.path >= tcp::kMostPaths)
    return std::nullopt;
  return out;
}

void DataPort::add(const DataSecret& secret, OnConnection handler) {
  std::lock_guard lock(mutex_);
  transports_.emplace_back(secret, std::move(handler));
}

void DataPort::remove(const DataSecret& secret) {
  std::lock_guard lock(mutex_);
  std::erase_if(transports_, [&](const auto& one) { return are_equal(one.first, secret); });
}

void DataPort::adopt(Stream socket, ConstBytes hello) {
  const auto named = DataHello::decode(hello);
  if (!named) return;
  std::lock_guard lock(mutex_);
  if (socket.peer() != 0 && socket.peer() != named->from) {
    if (const TimePoint now = Clock::now(); now - refused_at_ >= kLogRefusals) {
      refused_at_ = now;
      log(LogLevel::kWarn, "tcp: refused a connection from " + remote_address(socket.fd()) +
                               ": it has " + socket.peer_name() + ", and names another process");
    }
    return;
  }
  for (const auto& [secret, handler] : transports_)
    if (are_equal(secret, named->secret)) return handler(std::move(socket), *named);
}

}  // namespace ringdist

namespace ringdist::tcp {
namespace {

constexpr size_t kMaxAddresses = 64;

// Returns the bytes of an address in the form of without_port(): 4 or 16, or none.
std::vector<uint8_t> bytes_of(const std::string& ip) {
  std::vector<uint8_t> out(sizeof(in6_addr));
  if (inet_pton(AF_INET, ip.c_str(), out.data()) == 1) {
    out.resize(sizeof(in_addr));
  } else {
    const std::string bare = ip.starts_with('[') ? ip.substr(1, ip.find_first_of("%]") - 1) : ip;
    if (inet_pton(AF_INET6, bare.c_str(), out.data()) != 1) out.clear();
  }
  return out;
}

// Returns how many first bits are equal; -1 for addresses of different families.
int common_bits(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  if (a.size() != b.size() || a.empty()) return -1;
  const auto differs = std::ranges::mismatch(a, b);
  const int equal = 8 * static_cast<int>(differs.in1 - a.begin());
  if (differs.in1 == a.end()) return equal;
  return equal + std::countl_zero(static_cast<uint8_t>(*differs.in1 ^ *differs.in2));
}

}  // namespace

std::vector<std::byte> DataAddress::encode() const {
  Writer out;
  out.put(secret).put(static_cast<uint32_t>(addresses.size()));
  for (const std::string& address : addresses) out.put_string(address);
  return out.take();
}

std::optional<DataAddress> DataAddress::decode(ConstBytes bytes) {
  Reader in(bytes);
  DataAddress out;
  out.secret = in.get<DataSecret>();
  const auto count = in.get<uint32_t>();
  if (count == 0 || count > kMaxAddresses) return std::nullopt;
  for (uint32_t i = 0; i < count && in.ok(); ++i) out.addresses.push_back(in.get_string());
  if (!in.ended()) return std::nullopt;
  return out;
}

std::vector<Path> pair_interfaces(const std::vector<std::string>& own_ips,
                                  const std::vector<std::string>& addresses) {
  struct Pair {
    int bits;
    size_t own, other;
  };
  std::vector<Pair> pairs;
  for (size_t own = 0; own < own_ips.size(); ++own)
    for (size_t other = 0; other < addresses.size(); ++other)
      pairs.push_back(
          {common_bits(bytes_of(own_ips[own]), bytes_of(without_port(addresses[other]))), own,
           other});
  std::ranges::stable_sort(pairs, std::ranges::greater(), &Pair::bits);
  std::vector<Path> out;
  std::vector<bool> own_used(own_ips.size()), other_used(addresses.size());
  for (const Pair& pair : pairs) {
    if (pair.bits < 0 || own_used[pair.own] || other_used[pair.other]) continue;
    own_used[pair.own] = other_used[pair.other] = true;
    if (out.size() < kMostPaths) out.push_back({own_ips[pair.own], addresses[pair.other]});
  }
  if (out.empty()) out.push_back({"", addresses.front()});
  return out;
}

}  // namespace ringdist::tcp
