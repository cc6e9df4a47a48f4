#include "os/network_interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "os/fd.h"

namespace ringdist {
namespace {

// Returns the 4 or 16 bytes of an address.
std::vector<uint8_t> address_bytes(const sockaddr* address) {
  std::vector<uint8_t> out;
  if (address->sa_family == AF_INET) {
    auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    out.resize(4);
    std::memcpy(out.data(), &v4->sin_addr, 4);
  } else if (address->sa_family == AF_INET6) {
    auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&v6->sin6_addr);
    const size_t mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) ? 12 : 0;  // ::ffff:a.b.c.d
    out.assign(bytes + mapped, bytes + 16);
  }
  return out;
}

// The scope of a link-local address is ignored.
std::optional<std::vector<uint8_t>> parse_ip(const std::string& text) {
  const std::string ip = text.substr(0, text.find('%'));
  std::vector<uint8_t> v4(4), v6(16);
  if (inet_pton(AF_INET, ip.c_str(), v4.data()) == 1) return v4;
  if (inet_pton(AF_INET6, ip.c_str(), v6.data()) == 1) return v6;
  return std::nullopt;
}

// Returns true for 169.254.0.0/16 (RFC 3927) and fe80::/10 (RFC 4291).
bool is_link_local(const std::vector<uint8_t>& bytes) {
  return bytes.size() == 4 ? bytes[0] == 169 && bytes[1] == 254
                           : bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

// Returns the numeric form of an address, with the scope if it is a link-local one of IPv6.
std::string format_ip(const sockaddr* address) {
  const std::vector<uint8_t> bytes = address_bytes(address);
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(bytes.size() == 4 ? AF_INET : AF_INET6, bytes.data(), text.data(), text.size());
  std::string out = text.data();
  if (bytes.size() == 4 || !is_link_local(bytes)) return out;
  std::array<char, IF_NAMESIZE> name{};
  const uint32_t scope = reinterpret_cast<const sockaddr_in6*>(address)->sin6_scope_id;
  return if_indextoname(scope, name.data()) ? out + '%' + name.data() : out;
}

int prefix_bits(const sockaddr* mask) {
  int bits = 0;
  if (mask)
    for (uint8_t byte : address_bytes(mask)) bits += std::popcount(byte);
  return bits;
}

// Returns true if the first `bits` bits are equal. Addresses of different families never match.
bool same_network(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b, int bits) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size() && bits > 0; ++i, bits -= 8) {
    auto mask = static_cast<uint8_t>(bits >= 8 ? 0xff : 0xff << (8 - bits));
    if ((a[i] & mask) != (b[i] & mask)) return false;
  }
  return true;
}

struct Network {
  std::vector<uint8_t> bytes;
  int bits = 0;
};

// Parses "10.0.0.0/8", or a single address.
std::optional<Network> parse_network(const std::string& text) {
  auto slash = text.find('/');
  auto ip = parse_ip(text.substr(0, slash));
  if (!ip) return std::nullopt;
  int most = static_cast<int>(ip->size()) * 8;
  if (slash == std::string::npos) return Network{*ip, most};
  int bits = -1;
  const char* end = text.data() + text.size();
  auto parsed = std::from_chars(text.data() + slash + 1, end, bits);
  if (parsed.ec != std::errc() || parsed.ptr != end || bits < 0 || bits > most) return std::nullopt;
  return Network{*ip, bits};
}

std::vector<std::string> split_spec(const std::string& spec) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= spec.size();) {
    size_t comma = std::min(spec.find(',', at), spec.size());
    std::string part = spec.substr(at, comma - at);
    std::erase(part, ' ');
    if (!part.empty()) out.push_back(part);
    at = comma + 1;
  }
  return out;
}

bool has_scope(const NetworkInterface& i) { return i.address.find('%') != std::string::npos; }

// Returns the candidates that are up and match one part of a spec.
std::vector<NetworkInterface> matching(const std::string& part,
                                       const std::vector<NetworkInterface>& candidates) {
  auto network = parse_network(part);
  bool exact = std::any_of(candidates.begin(), candidates.end(),
                           [&](const NetworkInterface& i) { return i.name == part; });
  std::vector<NetworkInterface> out;
  for (const NetworkInterface& i : candidates) {
    if (!i.up) continue;
    bool match = network ? same_network(*parse_ip(i.address), network->bytes, network->bits)
                 : exact ? i.name == part
                         : i.name.starts_with(part) && !i.loopback;
    // "0.0.0.0/0" means any network, but not loopback.
    if (network && i.loopback && network->bits == 0) match = false;
    if (match) out.push_back(i);
  }
  // Almost every interface has a link-local address of IPv6, also one that leads nowhere.
  if (!std::ranges::all_of(out, has_scope)) std::erase_if(out, has_scope);
  return out;
}

Error none_fits(const std::string& why, const std::vector<NetworkInterface>& candidates) {
  return Error(ErrorKind::kInvalidArgument,
               why + "; there are: " + format_interfaces(candidates) +
                   ". Set RINGDIST_SOCKET_IFNAME to a name, a name prefix or a network such as "
                   "10.0.0.0/8 (several separated by commas)");
}

// Returns the address that the kernel would send from. Connecting a datagram socket sends nothing.
std::optional<std::string> source_address(const sockaddr* to, socklen_t length) {
  Fd fd = Fd::open([to] { return socket(to->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  if (!fd || connect(fd.get(), to, length) != 0) return std::nullopt;
  sockaddr_storage from{};
  socklen_t size = sizeof from;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&from), &size) != 0) return std::nullopt;
  return format_ip(reinterpret_cast<const sockaddr*>(&from));
}

// Returns the interface that has the address and is up.
std::optional<NetworkInterface> holder_of(const std::string& address,
                                          const std::vector<NetworkInterface>& candidates) {
  for (const NetworkInterface& i : candidates)
    if (i.up && i.address == address) return i;
  return std::nullopt;
}

// Returns the interface that routes to a host, IPv4 first; `flags` go to getaddrinfo(). The port
// has no meaning, because nothing is sent.
std::optional<NetworkInterface> route_to(const std::string& host, int flags,
                                         const std::vector<NetworkInterface>& candidates) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return std::nullopt;
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (int family : {AF_INET, AF_INET6}) {
    for (addrinfo* a = found; a; a = a->ai_next) {
      if (a->ai_family != family) continue;
      auto source = source_address(a->ai_addr, a->ai_addrlen);
      auto holder = source ? holder_of(*source, candidates) : std::nullopt;
      if (holder) return holder;
    }
  }
  return std::nullopt;
}

// Returns the interface behind which other hosts most likely are. The addresses belong to
// documentation networks: they are routed like any outside address, and no machine has them. Almost
// every interface has a link-local address of IPv6, so that is no sign of other hosts.
std::optional<NetworkInterface> outside(const std::vector<NetworkInterface>& candidates) {
  for (const char* nobody : {"192.0.2.1", "2001:db8::1"})
    if (auto found = route_to(nobody, AI_NUMERICHOST, candidates)) return found;
  const auto first = std::ranges::find_if(
      candidates, [](const NetworkInterface& i) { return i.up && !i.loopback && !has_scope(i); });
  return first == candidates.end() ? std::nullopt : std::optional(*first);
}

// Returns true if the name means the machine itself on every machine.
bool names_this_machine(const std::string& host) {
  return host == "localhost" || host.starts_with("127.") || host == "::1";
}

Result<NetworkInterface> choose_by_route(const std::string& store_host,
                                         const std::vector<NetworkInterface>& candidates) {
  std::optional<NetworkInterface> found;
  if (!store_host.empty()) {
    found = route_to(store_host, 0, candidates);
    if (!found)
      return none_fits("no network interface routes to the store's host \"" + store_host + "\"",
                       candidates);
    if (!found->loopback) return *found;
  }
  // Debian's /etc/hosts maps a machine's own name to 127.0.1.1, which other hosts cannot reach.
  if (!names_this_machine(store_host))
    if (auto likely = outside(candidates)) found = likely;
  for (const NetworkInterface& i : candidates)
    if (!found && i.loopback && i.up) found = i;
  if (!found) return none_fits("there is no network interface that is up", candidates);
  found->guessed = true;
  return *found;
}

}  // namespace

Result<std::vector<NetworkInterface>> list_interfaces() {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return system_error("getifaddrs", errno);
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(found, freeifaddrs);
  std::vector<NetworkInterface> out;
  std::set<std::string> plain;  // devices with an address that is neither link-local nor labelled
  for (ifaddrs* i = found; i; i = i->ifa_next) {
    if (!i->ifa_addr) continue;
    auto bytes = address_bytes(i->ifa_addr);
    if (bytes.empty()) continue;
    NetworkInterface one{
        i->ifa_name,        format_ip(i->ifa_addr),       prefix_bits(i->ifa_netmask),
        bytes.size() == 16, (i->ifa_flags & IFF_UP) != 0, (i->ifa_flags & IFF_LOOPBACK) != 0};
    if (!is_link_local(bytes) && one.device() == one.name) plain.insert(one.name);
    out.push_back(std::move(one));
  }
  for (NetworkInterface& one : out) one.plain = plain.contains(one.device());
  std::ranges::stable_sort(
      out, {}, [](const NetworkInterface& i) { return std::pair(i.ipv6, has_scope(i)); });
  return out;
}

std::string format_interfaces(const std::vector<NetworkInterface>& interfaces) {
  std::string out;
  for (const NetworkInterface& i : interfaces) {
    out.append(out.empty() ? "" : ", ").append(i.name).append(" ").append(i.address);
    out.append("/").append(std::to_string(i.prefix));
    if (i.loopback) out.append(" (loopback)");
    if (!i.up) out.append(" (down)");
  }
  return out.empty() ? "none" : out;
}

Result<std::vector<NetworkInterface>> select_interfaces(
    const std::string& spec, const std::vector<NetworkInterface>& candidates) {
  std::vector<NetworkInterface> out;
  for (const std::string& part : split_spec(spec)) {
    for (const NetworkInterface& i : matching(part, candidates)) {
      bool known = std::any_of(out.begin(), out.end(),
                               [&](const NetworkInterface& other) { return other.name == i.name; });
      if (!known) out.push_back(i);
    }
  }
  if (out.empty())
    return none_fits(
        "no network interface that is up matches RINGDIST_SOCKET_IFNAME=\"" + spec + "\"",
        candidates);
  return out;
}

Result<std::vector<NetworkInterface>> choose_interfaces(const std::string& spec,
                                                        const std::string& store_host) {
  auto candidates = list_interfaces();
  if (!candidates.ok()) return candidates.error();
  if (!split_spec(spec).empty()) return select_interfaces(spec, candidates.value());
  auto chosen = choose_by_route(store_host, candidates.value());
  if (!chosen.ok()) return chosen.error();
  return std::vector<NetworkInterface>{chosen.value()};
}

}  // namespace ringdist
