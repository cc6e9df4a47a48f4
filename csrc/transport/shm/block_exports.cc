#include "transport/shm/block_exports.h"

#include <algorithm>

#include "base/log.h"

namespace ringdist::shm {
namespace {

constexpr auto kAnswerTime = std::chrono::milliseconds(10);  // of a peer that is awake

}  // namespace

BlockExports::Export* BlockExports::find(const SharedBlock& block) {
  const auto it =
      std::ranges::find_if(all_, [&](const Export& loan) { return loan.block.get() == &block; });
  return it == all_.end() ? nullptr : &*it;
}

std::optional<uint64_t> BlockExports::place(uint32_t ring, ConstBytes payload) {
  if (payload.size() <= kMostCopied) return std::nullopt;
  auto block = SharedBlockRegistry::of_process().find(payload);
  if (!block) return std::nullopt;
  const auto offset = static_cast<uint64_t>(payload.data() - block->data());
  const Export* loan = find(*block);
  if (!loan) offer(ring, std::move(block));
  if (!loan || loan->state != State::kTaken) return std::nullopt;
  SharedBlockRegistry::of_process().count_read(payload.size());
  return export_address(loan->number, offset);
}

void BlockExports::offer(uint32_t ring, std::shared_ptr<SharedBlock> block) {
  detach_freed();
  if (all_.size() == kMaxExports || !line_.open(ring)) return;
  if (all_.empty()) frees_seen_ = SharedBlockRegistry::of_process().frees();
  block->mark_exported();
  const uint32_t number = free_number();
  all_.push_back({number, State::kOffered, block});
  hint_ = line_.send({.word = ExportMessageType::kExport, .loan = number, .bytes = block->size()},
                     &block->file());
  if (!hint_) all_.pop_back();
  offered_ = Clock::now();
}

bool BlockExports::awaits_answer(TimePoint now) const {
  if (all_.empty() || now - offered_ > kAnswerTime) return false;
  return std::ranges::any_of(all_,
                             [](const Export& loan) { return loan.state == State::kOffered; });
}

// One that names no loan: the last that was given back comes last.
uint32_t BlockExports::free_number() {
  const auto taken = [this](uint32_t number) {
    return std::ranges::any_of(all_, [&](const Export& loan) { return loan.number == number; });
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

// What messages name is the peer's until it has read them, and is offered again later.
void BlockExports::lose_socket() {
  line_.abandon();
  clear();
}

Error BlockExports::on_message(const ExportMessage& note) {
  const auto it =
      std::ranges::find_if(all_, [&](const Export& loan) { return loan.number == note.loan; });
  const bool answers =
      note.word == ExportMessageType::kTaken || note.word == ExportMessageType::kRefused;
  if (!answers || note.loan >= kExportNumbers || (it != all_.end() && it->state != State::kOffered))
    return Error(ErrorKind::kProtocol, "an answer that nobody asked for");
  if (it == all_.end()) return {};  // freed meanwhile
  it->state = note.word == ExportMessageType::kTaken ? State::kTaken : State::kRefused;
  if (it->state == State::kRefused)
    log(LogLevel::kWarn,
        "a process of this host has no room for a shared tensor of this one: it is copied");
  return {};
}

void BlockExports::detach_freed() {
  const uint64_t frees = all_.empty() ? frees_seen_ : SharedBlockRegistry::of_process().frees();
  if (frees == frees_seen_) return;
  const auto told = [&](const Export& loan) {
    return loan.block->freed() &&
           line_.send({.word = ExportMessageType::kDetach, .loan = loan.number});
  };
  std::erase_if(all_, told);
  if (std::ranges::none_of(all_, [](const Export& loan) { return loan.block->freed(); }))
    frees_seen_ = frees;
}

}  // namespace ringdist::shm
