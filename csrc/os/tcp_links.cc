#include "os/tcp_links.h"

#include <linux/tcp.h>  // glibc's has no tcpi_busy_time
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <system_error>
#include <utility>

#include "os/socket.h"

namespace ringdist {
namespace {

constexpr size_t kMostSockets = 4096;
constexpr uint8_t kEstablished = 1;  // TCP_ESTABLISHED, which only glibc's header has

template <typename T>
std::optional<T> option(int descriptor, int level, int name, size_t least) {
  T out{};
  socklen_t size = sizeof out;
  if (getsockopt(descriptor, level, name, &out, &size) != 0 || size < least) return std::nullopt;
  return out;
}

// Returns the numbers of all open descriptors, or none without /proc.
std::vector<int> descriptors() {
  std::vector<int> out;
  std::error_code failed;
  for (std::filesystem::directory_iterator at("/proc/self/fd", failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename();
    int number = -1;
    std::from_chars(name.data(), name.data() + name.size(), number);
    out.push_back(number);
  }
  return out;
}

// Returns how much a counter has grown.
uint64_t increase(uint64_t now, uint64_t before) { return now - std::min(now, before); }

}  // namespace

// Another thread may close a descriptor meanwhile, and open another one with its number. Then a row
// has the progress of the wrong connection once.
std::vector<LinkProgress> TcpLinks::read(size_t most) {
  std::map<uint64_t, Counters> seen;
  std::map<std::pair<std::string, std::string>, LinkProgress> rows;
  for (const int descriptor : descriptors()) {
    const auto info = option<tcp_info>(descriptor, IPPROTO_TCP, TCP_INFO,
                                       offsetof(tcp_info, tcpi_sndbuf_limited));
    if (!info || info->tcpi_state != kEstablished) continue;
    const auto cookie = option<uint64_t>(descriptor, SOL_SOCKET, SO_COOKIE, sizeof(uint64_t));
    auto [local, remote] = ends_of(descriptor);
    if (!cookie || local == remote) continue;
    if (seen.size() >= kMostSockets) break;
    const Counters now{info->tcpi_bytes_acked,
                       increase(info->tcpi_busy_time, info->tcpi_rwnd_limited),
                       info->tcpi_total_retrans};
    if (!seen.emplace(*cookie, now).second) continue;  // a duplicate of a descriptor
    const Counters before = last_[*cookie];
    LinkProgress& row = rows[{local, remote}];
    row.bytes += increase(now.bytes, before.bytes);
    row.busy = std::max(row.busy, increase(now.busy, before.busy));
    row.resent += increase(now.resent, before.resent);
    row.rtt = row.rtt == 0 ? info->tcpi_rtt : std::min(row.rtt, info->tcpi_rtt);
    row.local = std::move(local);
    row.remote = std::move(remote);
  }
  last_ = std::move(seen);
  std::vector<LinkProgress> out;
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  std::ranges::sort(out, std::greater(), &LinkProgress::bytes);
  if (out.size() > most) out.resize(most);
  return out;
}

}  // namespace ringdist
