// Fuzz target: transport shm, with a process of this host that sends any hello and any export
// messages. It also writes anything into its shared memory, even while that is being read.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <thread>

#include "base/serialize.h"
#include "fuzz/target.h"
#include "os/doorbell.h"
#include "os/socket.h"
#include "transport/shm/block_exports.h"
#include "transport/shm/shm_transport.h"

namespace ringdist::test {
namespace shm_fuzz {

constexpr ContextId kReader = 1, kOutsider = 2;
constexpr size_t kPage = 4096;
constexpr size_t kMostSockets = 8;

enum Step : uint8_t {
  kHello,
  kBytes,
  kExport,
  kWrite,
  kRewrite,
  kProgress,
  kHangUp,
  kSend,
  kSteps
};

// Reads each payload, as an op does.
struct Receiver final : TransportDelegate {
  void on_message(ContextId, ConstBytes header, const Payload& payload) override {
    check(header.size() <= kMaxHeaderBytes, "a header that is too large");
    for (const ConstBytes bytes : {header, payload.bytes()})
      for (const std::byte byte : bytes)
        sum = static_cast<uint8_t>(sum ^ std::to_integer<uint8_t>(byte));
    (void)payload.still_valid();
  }
  void on_sent(SendId, const Error&) override {}
  void on_connection_lost(std::string_view, ContextId, const Error& cause) override {
    check(static_cast<bool>(cause), "a connection is lost without a cause");
  }

  volatile uint8_t sum = 0;
};

Fd unsealed() {
  Fd out = Fd::open([] { return memfd_create("ringdist-fuzz", MFD_CLOEXEC); });
  check(ftruncate(out.get(), shm::kSegmentBytes) == 0, "no memory");
  return out;
}

class World {
 public:
  World() {
    TransportConfig config;
    config.context_id = kReader;
    transport_ = std::move(shm_create(config, receiver_).value());
  }
  void step(uint8_t step, FuzzInput& input) {
    if (step == kHello) hello(input.byte(), input.piece());
    if (step == kBytes) send(input.byte(), input.piece());
    if (step == kExport) export_block(input.byte(), input.piece());
    if (step == kWrite) write(input);
    if (step == kRewrite) rewrite(input);
    if (step == kProgress) progress(1 + input.byte() % 16);
    if (step == kHangUp && !sockets_.empty()) sockets_.erase(sockets_.begin());
    if (step == kSend) answer(input.piece());
  }
  void progress(int times) {
    while (times-- > 0) transport_->progress();
  }
  // After all connections have ended, nothing is left to read.
  void end() {
    progress(4);
    sockets_.clear();
    std::this_thread::sleep_for(
        std::chrono::microseconds(1100));  // sockets are polled each millisecond
    progress(4);
    transport_->drop_peer(kOutsider);
    transport_->close();
  }

 private:
  // Dials, and sends a hello with the chosen descriptors.
  void hello(uint8_t choice, ConstBytes bytes) {
    Fd socket = dial();
    const int memory = file_.get(), bell = doorbell_.write_end().get();
    const std::vector<std::vector<int>> choices{
        {memory, bell},       {},       {memory, memory},     {unsealed_.get(), bell},
        {small_.get(), bell}, {memory}, {memory, bell, bell}, {bell, memory}};
    (void)send_with_fds(socket, bytes, choices[choice % choices.size()]);
    sockets_.push_back(std::move(socket));
    progress(1);
  }
  void send(size_t at, ConstBytes bytes) {
    if (sockets_.empty()) return;
    (void)::send(sockets_[at % sockets_.size()].get(), bytes.data(), bytes.size(),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    progress(1);
  }
  // Sends a message over the latest connection, mostly with a file.
  void export_block(uint8_t choice, ConstBytes bytes) {
    if (sockets_.empty()) return;
    const std::vector<std::vector<int>> choices{
        {small_.get()}, {}, {file_.get()}, {unsealed_.get()}};
    (void)send_with_fds(sockets_.back(), bytes, choices[choice % choices.size()]);
    progress(1);
  }
  // Returns a part of the outsider's memory: a ring's counter or slot, or the chunks.
  Bytes place(FuzzInput& input) {
    const uint8_t where = input.byte(), index = input.byte();
    auto& segment = *reinterpret_cast<shm::ShmSegment*>(memory_.data());
    auto* const base = memory_.data();
    size_t at = 0;
    if (where % 4 == 1) at = reinterpret_cast<std::byte*>(&segment.rings[where / 4]) - base;
    if (where % 4 == 2)
      at =
          reinterpret_cast<std::byte*>(&segment.rings[where / 4].slots[index % shm::kSlots]) - base;
    if (where % 4 == 3) at = shm::kChunksAt + index * shm::kSmallChunk;
    return {base + at, kPage};
  }
  void write(FuzzInput& input) {
    const Bytes to = place(input);
    const auto bytes = input.piece();
    std::memcpy(to.data(), bytes.data(), std::min(to.size(), bytes.size()));
  }
  // Lets another thread change these bytes all the time while messages are read.
  void rewrite(FuzzInput& input) {
    const Bytes to = place(input);
    const auto bytes = input.piece();
    std::atomic<bool> ends = false;
    std::thread writer([&] {
      for (unsigned round = 0; !ends.load(std::memory_order_relaxed); ++round)
        for (size_t i = 0; i < std::min(to.size(), bytes.size()); ++i)
          const_cast<volatile std::byte&>(to[i]) = round % 2 == 0 ? bytes[i] : std::byte{0};
    });
    progress(16);
    ends = true;
    writer.join();
  }
  // Sends a message to the outsider, which answers the dial with these bytes.
  void answer(ConstBytes bytes) {
    if (!listener_) {
      const std::string name = "@ringdist-fuzz-" + std::to_string(getpid());
      listener_ = std::move(listen_unix(name).value());
      const ConstBytes address(reinterpret_cast<const std::byte*>(name.data()), name.size());
      check(!transport_->add_peer(kOutsider, address), "no peer");
    }
    transport_->send(kOutsider, {}, bytes, kNoSendId);
    Fd accepted = accept_connection(listener_);
    if (!accepted || sockets_.size() == kMostSockets) return;
    const std::array<int, 2> fds{file_.get(), doorbell_.write_end().get()};
    (void)send_with_fds(accepted, bytes, fds);
    sockets_.push_back(std::move(accepted));
    progress(2);
  }
  Fd dial() const {
    const auto address = transport_->address();
    return connect_unix({reinterpret_cast<const char*>(address.data()), address.size()}).fd;
  }

  Receiver receiver_;
  Fd file_ = std::move(create_memory("ringdist-fuzz", shm::kSegmentBytes).value());
  Fd small_ = std::move(create_memory("ringdist-fuzz", kPage).value());
  Fd unsealed_ = unsealed();
  Mapping memory_ = std::move(map_memory(file_, shm::kSegmentBytes, /*writable=*/true).value());
  Doorbell doorbell_ = std::move(Doorbell::create().value());
  Fd listener_;
  std::vector<Fd> sockets_;
  std::unique_ptr<Transport> transport_;
};

bool run(ConstBytes bytes) { return run_steps<World>(bytes, kSteps); }

// ---- Seeds

template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  const ConstBytes bytes = std::as_bytes(std::span(&value, 1));
  return {bytes.begin(), bytes.end()};
}

// Returns the bytes of the hello that `send` sends.
std::vector<std::byte> hello_of(const std::function<Error(const Fd&)>& send) {
  std::array<int, 2> ends{};
  check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "no sockets");
  const Fd ours = Fd::open([&] { return ends[0]; }), theirs = Fd::open([&] { return ends[1]; });
  check(!send(ours), "no hello");
  std::vector<std::byte> out(sizeof(shm::ShmHello));
  check(recv(theirs.get(), out.data(), out.size(), 0) == static_cast<ssize_t>(out.size()),
        "no hello");
  return out;
}

// Publishes a message in ring 0.
void message(FuzzSeed& out, uint8_t number, uint32_t header, uint32_t payload, uint64_t at) {
  out.byte(kWrite).byte(2).byte(number);
  out.piece(Writer().put(header).put(payload).put(at).take());
  out.byte(kWrite).byte(1).byte(0).piece(Writer().put(uint64_t{number} + 1).take());
  out.byte(kProgress).byte(1);
}

FuzzSeeds seeds() {
  const Doorbell bell = std::move(Doorbell::create().value());
  const auto hello = [&](uint32_t index, ContextId from, ContextId to) {
    return hello_of([&](const Fd& socket) {
      return shm::send_hello(socket, from, to, index, bell.write_end(), bell.write_end());
    });
  };
  const auto for_exports = hello_of(
      [](const Fd& socket) { return shm::send_export_hello(socket, kOutsider, kReader, 0); });
  const shm::ExportMessage block{
      .word = shm::ExportMessageType::kExport, .export_id = 7, .bytes = kPage};
  const shm::ExportMessage detach{.word = shm::ExportMessageType::kDetach, .export_id = 7};
  FuzzSeeds out;
  for (uint8_t fds = 0; fds < 8; ++fds)
    out.push_back(FuzzSeed()
                      .byte(kHello)
                      .byte(fds)
                      .piece(hello(0, kOutsider, kReader))
                      .byte(kProgress)
                      .take());
  FuzzSeed all;
  all.byte(kHello).byte(0).piece(hello(0, kOutsider, kReader));
  message(all, 0, 8, 16, 0);
  message(all, 1, 8, 1000, shm::kChunksAt);
  message(all, 2, 8, 1000, shm::kLargeAt);
  all.byte(kHello).byte(1).piece(for_exports);
  all.byte(kExport).byte(0).piece(bytes_of(block));
  message(all, 3, 8 | shm::kExported, 16, shm::export_address(7, 64));
  message(all, 4, 8 | shm::kExported | shm::kExportAnnounced, 16, shm::export_address(7, kPage));
  all.byte(kExport).byte(1).piece(bytes_of(detach));
  all.byte(kWrite).byte(1).byte(0).piece(Writer().put(shm::kLast | 5).take());
  out.push_back(all.take());
  FuzzSeed race;
  race.byte(kHello).byte(0).piece(hello(0, kOutsider, kReader));
  for (uint8_t number = 0; number < 8; ++number) message(race, number, 8, 16, 0);
  race.byte(kWrite).byte(1).byte(0).piece(Writer().put(uint64_t{100}).take());
  race.byte(kRewrite).byte(2).byte(9);
  race.piece(Writer().put(uint32_t{8}).put(uint32_t{200}).put(shm::kChunksAt).take());
  race.byte(kRewrite).byte(1).byte(0).piece(Writer().put(uint64_t{120}).take());
  out.push_back(race.take());
  out.push_back(FuzzSeed().byte(kSend).piece(hello(0, kOutsider, kReader)).byte(kProgress).take());
  return out;
}

}  // namespace shm_fuzz

const FuzzTarget kShmFuzz{"shm", "csrc/transport/shm/", shm_fuzz::run, shm_fuzz::seeds};

}  // namespace ringdist::test
