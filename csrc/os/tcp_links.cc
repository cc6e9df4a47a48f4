#include "os/tcp_links.h"

#include <linux/tcp.h>  // glibc's has no tcpi_busy_time
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <utility>

#include "os/socket.h"

namespace ringdist {
namespace {

constexpr int kMostDescriptors = 4096;
// The kernel gives the lowest free number, so there are no more after such a gap.
constexpr int kGap = 256;
constexpr uint8_t kEstablished = 1;  // TCP_ESTABLISHED, which only glibc's header has

template <typename T>
std::optional<T> option(int descriptor, int level, int name, size_t least) {
  T out{};
  socklen_t size = sizeof out;
  if (getsockopt(descriptor, level, name, &out, &size) != 0 || size < least) return std::nullopt;
  return out;
}

}  // namespace

// Another thread may close a descriptor meanwhile, or open one with its number: both give an error,
// or the counters of a socket that the next call finds.
std::vector<LinkProgress> TcpLinks::read() {
  std::map<uint64_t, Counters> seen;
  std::map<std::pair<std::string, std::string>, LinkProgress> rows;
  for (int descriptor = 0, last = 0; descriptor < std::min(kMostDescriptors, last + kGap);
       ++descriptor) {
    const auto info = option<tcp_info>(descriptor, IPPROTO_TCP, TCP_INFO,
                                       offsetof(tcp_info, tcpi_sndbuf_limited));
    if (info || errno != EBADF) last = descriptor;
    if (!info || info->tcpi_state != kEstablished) continue;
    const auto cookie = option<uint64_t>(descriptor, SOL_SOCKET, SO_COOKIE, sizeof(uint64_t));
    auto [local, remote] = ends_of(descriptor);
    if (!cookie || local == remote) continue;
    const Counters now{
        info->tcpi_bytes_acked,
        info->tcpi_busy_time - std::min(info->tcpi_busy_time, info->tcpi_rwnd_limited),
        info->tcpi_total_retrans};
    if (!seen.emplace(*cookie, now).second) continue;  // a duplicate of a descriptor
    const Counters before = last_[*cookie];
    LinkProgress& row = rows[{local, remote}];
    row.bytes += now.bytes - before.bytes;
    row.busy = std::max(row.busy, now.busy - std::min(now.busy, before.busy));
    row.resent += now.resent - before.resent;
    row.rtt = row.rtt == 0 ? info->tcpi_rtt : std::min(row.rtt, info->tcpi_rtt);
    row.local = std::move(local);
    row.remote = std::move(remote);
  }
  last_ = std::move(seen);
  std::vector<LinkProgress> out;
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  return out;
}

}  // namespace ringdist
