#include "transport/shm/block_exports.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/log.h"
#include "os/socket.h"
#include "transport/shm/segment_layout.h"

namespace ringdist::shm {

bool send_export_message(const Fd& socket, const ExportMessage& note, const Fd* file) {
  const ConstBytes bytes = std::as_bytes(std::span(&note, 1));
  if (!file) return !send_with_fds(socket, bytes, {});
  const std::array<int, 1> fds{file->get()};
  return !send_with_fds(socket, bytes, fds);
}

// If this process has no descriptor left, the message has arrived without its file. It is returned
// in that form, so that its block is refused.
Result<std::optional<ReceivedExportMessage>> receive_export_message(const Fd& socket) {
  ExportMessage note;
  bool empty = false;
  auto received = receive_with_fds(socket, std::as_writable_bytes(std::span(&note, 1)), empty);
  const bool no_descriptor = !received.ok() && received.error().kind() == ErrorKind::kSystem;
  if (!received.ok() && !no_descriptor) return received.error();
  if (empty) return std::optional<ReceivedExportMessage>();
  if (!no_descriptor && received.value().bytes == 0)
    return Error(ErrorKind::kPeerLost, "the peer closed its connection");
  if (note.magic != ExportMessage::kMagic ||
      (!no_descriptor && received.value().bytes != sizeof note))
    return Error(ErrorKind::kProtocol, "unknown bytes on a connection of shared memory");
  ReceivedExportMessage out{note, {}};
  if (!no_descriptor && !received.value().fds.empty())
    out.file = std::move(received.value().fds.front());
  return std::optional<ReceivedExportMessage>(std::move(out));
}

namespace {

constexpr auto kDialAgainAfter = std::chrono::seconds(1);

// A peer that is awake answers within this time.
constexpr auto kOfferAnswerTime = std::chrono::milliseconds(10);

}  // namespace

bool ExportConnection::open(uint32_t ring) {
  if (state_ == State::kClosed && Clock::now() >= dial_again_) dial();
  if (is_proving() && is_proven()) {
    state_ = State::kOpen;
    if (const Error error = send_export_hello(socket_, me_, peer_, ring)) fail(error);
  }
  return is_open();
}

void ExportConnection::dial() {
  ConnectAttempt attempt = connect_to_own_user(address_);
  if (attempt.failure) {
    fail(attempt.failure->error);
    state_ = State::kClosed;
    return;
  }
  socket_ = std::move(attempt.fd);
  proof_ = KeyProof::dial(tls_key_, me_, peer_);
  state_ = State::kProving;
}

bool ExportConnection::is_proven() {
  const auto over = proof_.advance(socket_);
  if (!over.ok()) fail(over.error());
  return over.ok() && over.value();
}

void ExportConnection::fail(const Error& error) {
  abandon();
  if (!std::exchange(warned_, true))
    log(LogLevel::kWarn,
        "tensors in shared memory are copied for a process of this host: " + error.message());
}

bool ExportConnection::send(const ExportMessage& note, const Fd* file) {
  return is_open() && send_export_message(socket_, note, file);
}

Result<std::optional<ReceivedExportMessage>> ExportConnection::receive() {
  if (is_proving()) (void)is_proven();
  if (!is_open()) return std::optional<ReceivedExportMessage>();
  return receive_export_message(socket_);
}

void ExportConnection::abandon() {
  state_ = State::kLost;
  dial_again_ = Clock::now() + kDialAgainAfter;
}

// Hangs up, because a child that was just forked holds the socket as well. The reader must see the
// end of this connection before the next one begins.
void ExportConnection::close() {
  hang_up(socket_);
  socket_.reset();
  state_ = State::kClosed;
}

BlockExports::Export* BlockExports::find(const SharedBlock& block) {
  const auto it = std::ranges::find_if(
      all_, [&](const Export& exported) { return exported.block.get() == &block; });
  return it == all_.end() ? nullptr : &*it;
}

std::optional<uint64_t> BlockExports::place(uint32_t ring, ConstBytes payload) {
  if (payload.size() <= kMostCopied) return std::nullopt;
  const auto block = SharedBlockRegistry::of_process().find(payload);
  if (!block) return std::nullopt;
  const auto offset = static_cast<uint64_t>(payload.data() - block->data());
  const Export* exported = find(*block);
  if (!exported) offer(ring, block);
  if (!exported || exported->state != State::kTaken) return std::nullopt;
  SharedBlockRegistry::of_process().count_read(payload.size());
  return export_address(exported->number, offset);
}

void BlockExports::offer(uint32_t ring, const std::shared_ptr<SharedBlock>& block) {
  detach_freed();
  if (all_.size() == kMaxExports || !line_.open(ring)) return;
  // No block is exported, so no earlier free concerns one.
  if (all_.empty()) frees_seen_ = SharedBlockRegistry::of_process().frees();
  block->mark_exported();
  const uint32_t number = free_number();
  all_.push_back({number, State::kOffered, block});
  hint_ =
      line_.send({.word = ExportMessageType::kExport, .export_id = number, .bytes = block->size()},
                 &block->file());
  if (!hint_) all_.pop_back();
  offered_ = Clock::now();
}

bool BlockExports::awaits_answer(TimePoint now) const {
  if (all_.empty() || now - offered_ > kOfferAnswerTime) return false;
  return std::ranges::any_of(
      all_, [](const Export& exported) { return exported.state == State::kOffered; });
}

// Returns the next number after last_ that names no export. A number is thus reused as late as
// possible.
uint32_t BlockExports::free_number() {
  const auto taken = [this](uint32_t number) {
    return std::ranges::any_of(all_,
                               [&](const Export& exported) { return exported.number == number; });
  };
  do last_ = (last_ + 1) % kExportNumbers;
  while (taken(last_));
  return last_;
}

Error BlockExports::on_event() {
  while (true) {
    auto heard = line_.receive();
    if (!heard.ok()) {
      lose_socket();
      return heard.error().kind() == ErrorKind::kPeerLost ? Error() : heard.error();
    }
    if (!heard.value()) return {};
    if (Error error = on_message(heard.value()->note)) return error;
  }
}

void BlockExports::clear() {
  all_.clear();
  if (line_.is_proving()) line_.abandon();
}

// The blocks that messages in the ring name stay mapped by the peer until it has read them. They
// are exported again later.
void BlockExports::lose_socket() {
  line_.abandon();
  clear();
}

Error BlockExports::on_message(const ExportMessage& note) {
  const auto it = std::ranges::find_if(
      all_, [&](const Export& exported) { return exported.number == note.export_id; });
  const bool answers =
      note.word == ExportMessageType::kTaken || note.word == ExportMessageType::kRefused;
  if (!answers || note.export_id >= kExportNumbers ||
      (it != all_.end() && it->state != State::kOffered))
    return Error(ErrorKind::kProtocol, "an answer that nobody asked for");
  if (it == all_.end()) return {};  // freed meanwhile
  it->state = note.word == ExportMessageType::kTaken ? State::kTaken : State::kRefused;
  if (it->state == State::kRefused)
    log(LogLevel::kWarn,
        "a process of this host has no room for a shared tensor of this one: it is copied");
  return {};
}

// frees_seen_ changes only when all freed blocks are detached. So a message that the socket did not
// take is sent by a later call.
void BlockExports::detach_freed() {
  const uint64_t frees = all_.empty() ? frees_seen_ : SharedBlockRegistry::of_process().frees();
  if (frees == frees_seen_) return;
  const auto told = [&](const Export& exported) {
    return exported.block->freed() &&
           line_.send({.word = ExportMessageType::kDetach, .export_id = exported.number});
  };
  std::erase_if(all_, told);
  if (std::ranges::none_of(all_, [](const Export& exported) { return exported.block->freed(); }))
    frees_seen_ = frees;
}

void BlockImports::begin(uint64_t last) {
  former_.merge(blocks_);
  blocks_.clear();
  former_until_ = last;
}

void BlockImports::read_until(uint64_t consumed) {
  if (!former_.empty() && consumed >= former_until_) former_.clear();
}

void BlockImports::clear() {
  blocks_.clear();
  former_.clear();
}

Error BlockImports::on_event(const Fd& socket) {
  while (true) {
    auto heard = receive_export_message(socket);
    if (!heard.ok()) return heard.error();
    if (!heard.value()) return {};
    if (Error error = on_message(socket, *heard.value())) return error;
  }
}

Error BlockImports::on_message(const Fd& socket, const ReceivedExportMessage& heard) {
  const ExportMessage& note = heard.note;
  if (note.word == ExportMessageType::kDetach) {
    blocks_.erase(note.export_id);  // also an export that was refused
    return {};
  }
  if (note.word != ExportMessageType::kExport || note.export_id >= kExportNumbers ||
      blocks_.contains(note.export_id))
    return Error(ErrorKind::kProtocol, "an invalid export message");
  const ExportMessageType answer =
      take(heard) ? ExportMessageType::kTaken : ExportMessageType::kRefused;
  // If the answer cannot be sent, the peer goes on to copy.
  (void)send_export_message(socket, {.word = answer, .export_id = note.export_id});
  return {};
}

bool BlockImports::take(const ReceivedExportMessage& heard) {
  if (!heard.file || blocks_.size() >= kMaxExports) return false;
  auto mapping = map_memory(heard.file, heard.note.bytes, /*writable=*/false);
  if (!mapping.ok()) return false;
  blocks_[heard.note.export_id] = std::move(mapping.value());
  return true;
}

// A block of the present connection hides one of the former connection with the same number.
// Numbers are reused as late as possible, so that this does not happen.
std::optional<ConstBytes> BlockImports::find(uint64_t place, size_t bytes) const {
  const auto& from = blocks_.contains(export_of(place)) ? blocks_ : former_;
  const auto it = from.find(export_of(place));
  if (it == from.end()) return std::nullopt;
  const ConstBytes block{it->second.data(), it->second.size()};
  const uint64_t offset = offset_in_export(place);
  if (offset > block.size() || bytes > block.size() - offset) return std::nullopt;
  return block.subspan(offset, bytes);
}

}  // namespace ringdist::shm
