#include "transport/shm/hello.h"

#include "transport/shm/layout.h"

namespace ringdist::shm {
namespace {

constexpr uint64_t kMagic = 0x676e69722d6d6873ull;
constexpr uint32_t kNoRoom = UINT32_MAX;  // as an index

Error no_hello(const std::string& why) {
  return Error(ErrorKind::kProtocol, "no greeting of this version over shared memory: " + why);
}

}  // namespace

Error send_hello(const Fd& socket, ContextId from, ContextId to, uint32_t index, const Fd& segment,
                 const EventFd& doorbell) {
  const Hello hello{kMagic, kLayoutVersion, index, from, to};
  const std::array<int, 2> fds{segment.get(), doorbell.get()};
  return send_with_fds(socket, std::as_bytes(std::span(&hello, 1)), fds);
}

void refuse_hello(const Fd& socket, ContextId from) {
  const Hello hello{kMagic, kLayoutVersion, kNoRoom, from, 0};
  (void)send_with_fds(socket, std::as_bytes(std::span(&hello, 1)), {});
}

Result<std::optional<Greeted>> receive_hello(const Fd& socket, ContextId me, size_t bytes) {
  Hello hello{};
  bool empty = false;
  auto received = receive_with_fds(socket, std::as_writable_bytes(std::span(&hello, 1)), empty);
  if (!received.ok()) return received.error();
  if (empty) return std::optional<Greeted>();
  Received& got = received.value();
  if (got.bytes == 0) return Error(ErrorKind::kPeerLost, "the peer closed its connection");
  if (got.bytes == sizeof hello && hello.magic == kMagic && hello.index == kNoRoom)
    return Error(ErrorKind::kSystem,
                 "the peer has no descriptor or no memory left for the connection; raise "
                 "'ulimit -n' there");
  if (got.bytes != sizeof hello || hello.magic != kMagic || got.fds.size() != 2)
    return no_hello("unknown bytes");
  if (hello.layout_version != kLayoutVersion)
    return no_hello("its version is " + std::to_string(hello.layout_version));
  if (hello.to != me) return no_hello("it is meant for another process");
  if (hello.index >= kMaxLinks) return no_hello("its index is too large");
  auto segment = map_memory(got.fds[0], bytes, /*writable=*/false);
  if (!segment.ok()) return segment.error();
  return std::optional<Greeted>(
      Greeted{hello, std::move(segment.value()), EventFd::adopt(std::move(got.fds[1]))});
}

}  // namespace ringdist::shm
