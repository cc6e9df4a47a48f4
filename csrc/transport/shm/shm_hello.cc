#include "transport/shm/shm_hello.h"

#include <unistd.h>

#include <cerrno>

#include "transport/shm/segment_layout.h"

namespace ringdist::shm {
namespace {

// "shm-ring" in memory.
constexpr uint64_t kMagic = 0x676e69722d6d6873ull;
constexpr uint32_t kNoRoom = UINT32_MAX;             // an index that refuses the hello
constexpr uint32_t kForExports = uint32_t{1} << 31;  // flag of an index: an export hello

Error no_hello(const std::string& why) {
  return Error(ErrorKind::kProtocol, "no greeting of this version over shared memory: " + why);
}

}  // namespace

ConnectAttempt connect_to_own_user(const std::string& address) {
  ConnectAttempt out = connect_unix(address);
  if (out.failure) return out;
  const auto who = peer_credentials(out.fd);
  if (!who.ok())
    out.failure = {0, who.error()};
  else if (who.value().uid != geteuid())
    out.failure = {EPERM, Error(ErrorKind::kSystem, "the peer runs as another user")};
  return out;
}

Error send_hello(const Fd& socket, ContextId from, ContextId to, uint32_t index, const Fd& segment,
                 const Fd& write_end, bool* later) {
  const ShmHello hello{kMagic, kLayoutVersion, index, from, to};
  const std::array<int, 2> fds{segment.get(), write_end.get()};
  return send_with_fds(socket, std::as_bytes(std::span(&hello, 1)), fds, later);
}

Error send_export_hello(const Fd& socket, ContextId from, ContextId to, uint32_t index) {
  const ShmHello hello{kMagic, kLayoutVersion, index | kForExports, from, to};
  return send_with_fds(socket, std::as_bytes(std::span(&hello, 1)), {});
}

void refuse_hello(const Fd& socket, ContextId from) {
  const ShmHello hello{kMagic, kLayoutVersion, kNoRoom, from, 0};
  (void)send_with_fds(socket, std::as_bytes(std::span(&hello, 1)), {});
}

// Each field is checked before it is used, because the bytes come from another process. The index
// decides how much is mapped.
Result<std::optional<ReceivedHello>> receive_hello(const Fd& socket, ContextId me, bool reads) {
  ShmHello hello{};
  bool empty = false;
  auto received = receive_with_fds(socket, std::as_writable_bytes(std::span(&hello, 1)), empty);
  if (!received.ok()) return received.error();
  if (empty) return std::optional<ReceivedHello>();
  ReceivedFds& got = received.value();
  if (got.bytes == 0) return Error(ErrorKind::kPeerLost, "the peer closed its connection");
  if (got.bytes == sizeof hello && hello.magic == kMagic && hello.index == kNoRoom)
    return Error(ErrorKind::kSystem,
                 "the peer has no descriptor or no memory left for the connection; raise "
                 "'ulimit -n' or its limit of memory there");
  const bool for_exports = (hello.index & kForExports) != 0;
  hello.index &= ~kForExports;
  if (got.bytes != sizeof hello || hello.magic != kMagic || got.fds.size() != (for_exports ? 0 : 2))
    return no_hello("unknown bytes");
  if (hello.layout_version != kLayoutVersion)
    return no_hello("its version is " + std::to_string(hello.layout_version));
  if (hello.to != me) return no_hello("it is meant for another process");
  if (hello.index >= kMaxChannels) return no_hello("its index is too large");
  if (for_exports) return std::optional<ReceivedHello>(ReceivedHello{hello, for_exports});
  auto segment = map_memory(got.fds[0], reads ? end_of_ring(hello.index) : sizeof(ControlBlock),
                            /*writable=*/false);
  if (!segment.ok()) return segment.error();
  ReceivedHello out{hello, for_exports, std::move(segment.value()), {}, std::move(got.fds[1])};
  if (reads) {
    auto chunks = map_memory(got.fds[0], kSmallChunk, /*writable=*/false, kChunksAt,
                             kSegmentBytes - kChunksAt);
    if (!chunks.ok()) return chunks.error();
    out.chunks = std::move(chunks.value());
  }
  return std::optional<ReceivedHello>(std::move(out));
}

}  // namespace ringdist::shm
