#include "cuda/stream/host_mailboxes.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace ringdist::gpu {
namespace {

constexpr size_t kBytes = size_t{32} << 20;  // memory for mailboxes of each rank
constexpr size_t kLeast = size_t{64} << 10;  // smallest useful slot
constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;    // cache line: each word has its own
constexpr uint32_t kSlots = 4;  // slots of a mailbox
// Offset that abort() adds to words. It exceeds the number of messages in flight, and is below
// 2^31, beyond which a word counts as behind (CudaApi::wait_flag).
constexpr uint32_t kFar = uint32_t{1} << 30;

size_t round_up(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Returns the bytes for the words of a rank: two for each peer, and one for the abort.
size_t words_of(int size) { return round_up((2 * static_cast<size_t>(size) + 1) * kLine); }

// Returns the bytes of a slot, in whole pages.
size_t slot_of(int size) { return kBytes / kSlots / static_cast<size_t>(size - 1) / kPage * kPage; }

// Returns true if all ranks pass true.
Result<bool> all_say(RunnerDelegate& group, bool mine, TimePoint deadline) {
  std::vector<int> ranks(static_cast<size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const std::byte said{mine};
  const auto all = group.exchange(ranks, std::span(&said, 1), deadline);
  if (!all.ok()) return all.error();
  return std::ranges::all_of(all.value(), [](const auto& one) { return one[0] == std::byte{1}; });
}

}  // namespace

bool HostMailboxes::fit(int size) { return size > 1 && slot_of(size) >= kLeast; }

Result<std::shared_ptr<HostMailboxes>> HostMailboxes::make(CudaApi& cuda, RunnerDelegate& group,
                                                           TimePoint deadline) {
  const auto none = std::shared_ptr<HostMailboxes>();
  const int size = group.size();
  if (!fit(size)) return none;
  const size_t mailboxes = slot_of(size) * kSlots * static_cast<size_t>(size - 1);
  auto memory = group.share(words_of(size) + mailboxes, deadline);
  if (!memory.ok()) return memory.error();
  if (!memory.value()) return none;
  std::shared_ptr<HostMailboxes> out(new HostMailboxes(cuda, group, std::move(memory.value())));
  const auto good = all_say(group, !out->pin(), deadline);
  if (!good.ok()) return good.error();
  return good.value() ? out : none;
}

HostMailboxes::HostMailboxes(CudaApi& cuda, RunnerDelegate& group,
                             std::shared_ptr<GroupSharedMemory> memory)
    : cuda_(cuda),
      rank_(group.rank()),
      size_(group.size()),
      memory_(std::move(memory)),
      begin_(words_of(size_)),
      most_(slot_of(size_)),
      counts_(static_cast<size_t>(size_)) {}

HostMailboxes::~HostMailboxes() {
  for (const auto& [stream, side] : sides_) cuda_.free_stream(side.stream);
  for (int rank = 0; rank < pinned_; ++rank) cuda_.unpin(memory_->of_rank(rank).data());
}

Error HostMailboxes::pin() {
  for (; pinned_ < size_; ++pinned_) {
    const Bytes memory = memory_->of_rank(pinned_);
    if (Error error = cuda_.pin(memory.data(), memory.size())) return error;
  }
  return {};
}

uint32_t* HostMailboxes::word(int owner, int number) const {
  return reinterpret_cast<uint32_t*>(memory_->of_rank(owner).data() +
                                     static_cast<size_t>(number) * kLine);
}

std::byte* HostMailboxes::slot(int owner, int peer, uint32_t turn) const {
  const int box = peer < owner ? peer : peer - 1;  // a rank has no mailbox for itself
  return memory_->of_rank(owner).data() + begin_ +
         (static_cast<size_t>(box) * kSlots + turn % kSlots) * most_;
}

Result<HostMailboxes::Count> HostMailboxes::next(int peer, bool leaves) {
  std::lock_guard lock(mutex_);
  // abort() sets the word under this mutex. No message is counted afterwards, so the words that
  // reassert_abort() writes exceed all counts.
  if (has_ended(rank_)) return Error(ErrorKind::kAborted, "ringdist: the group has ended");
  Count& count = counts_[static_cast<size_t>(peer)];
  ++(leaves ? count.left : count.taken);
  return count;
}

Error HostMailboxes::post(int peer, const Pieces& pieces, Stream stream) {
  const auto count = next(peer, /*leaves=*/true);
  if (!count.ok()) return count.error();
  const uint32_t turn = count.value().left;
  // The message kSlots before had the same slot. The count is written behind the copies in the
  // stream, so a peer that sees it also sees the bytes.
  if (Error error = cuda_.wait_flag(stream, taken_word(peer, rank_), turn - kSlots)) return error;
  std::byte* to = slot(rank_, peer, turn);
  for (const auto& piece : pieces) {
    if (Error error = cuda_.copy(to, piece.data(), piece.size(), stream)) return error;
    to += piece.size();
  }
  return cuda_.write_flag(stream, left_word(rank_, peer), turn);
}

Error HostMailboxes::receive(int peer, const Pieces& pieces, Stream stream) {
  const auto count = next(peer, /*leaves=*/false);
  if (!count.ok()) return count.error();
  const uint32_t turn = count.value().taken;
  // The count that is written behind the copies frees the slot. Earlier, the peer could overwrite
  // bytes that have not been copied.
  if (Error error = cuda_.wait_flag(stream, left_word(peer, rank_), turn)) return error;
  const std::byte* from = slot(peer, rank_, turn);
  for (const auto& piece : pieces) {
    if (Error error = cuda_.copy(piece.data(), from, piece.size(), stream)) return error;
    from += piece.size();
  }
  return cuda_.write_flag(stream, taken_word(rank_, peer), turn);
}

Error HostMailboxes::use(Stream stream) {
  if (last_ == nullptr || last_ == stream) return {};
  return cuda_.wait(stream, uses_.at(last_).get());
}

Result<std::shared_ptr<void>> HostMailboxes::make_event() {
  const Result<Event> event = cuda_.make_event();
  if (!event.ok()) return event.error();
  return std::shared_ptr<void>(event.value(),
                               [cuda = &cuda_](Event one) { cuda->free_event(one); });
}

Result<HostMailboxes::SideStream> HostMailboxes::make_side() {
  auto begun = make_event(), done = make_event();
  if (!begun.ok()) return begun.error();
  if (!done.ok()) return done.error();
  const Result<Stream> stream = cuda_.make_stream();
  if (!stream.ok()) return stream.error();
  return SideStream{stream.value(), std::move(begun.value()), std::move(done.value())};
}

Result<Stream> HostMailboxes::fork(Stream stream) {
  auto it = sides_.find(stream);
  if (it == sides_.end()) {  // on the device of the stream, which is current
    auto made = make_side();
    if (!made.ok()) return made.error();
    it = sides_.emplace(stream, std::move(made.value())).first;
  }
  const SideStream& side = it->second;
  if (Error error = cuda_.record(side.begun.get(), stream)) return error;
  if (Error error = cuda_.wait(side.stream, side.begun.get())) return error;
  return side.stream;
}

Error HostMailboxes::join(Stream stream) {
  const SideStream& side = sides_.at(stream);
  const Error error = cuda_.record(side.done.get(), side.stream);
  return error ? error : cuda_.wait(stream, side.done.get());
}

Error HostMailboxes::end_use(Stream stream) {
  auto& use = uses_[stream];
  if (!use) {  // on the device of the stream, which is current
    auto event = make_event();
    if (!event.ok()) return event.error();
    use = std::move(event.value());
  }
  last_ = stream;
  return cuda_.record(use.get(), stream);
}

void HostMailboxes::abort() {
  {
    // This comes before the words are changed. Waits end early then, so other ranks must be able to
    // detect that data is invalid.
    std::lock_guard lock(mutex_);
    std::atomic_ref(*ended_word(rank_)).store(1);
  }
  reassert_abort();
}

bool HostMailboxes::has_ended(int owner) const {
  return std::atomic_ref(*ended_word(owner)).load() != 0;
}

bool HostMailboxes::ended() const {
  for (int rank = 0; rank < size_; ++rank)
    if (has_ended(rank)) return true;
  return false;
}

void HostMailboxes::reassert_abort() {
  std::lock_guard lock(mutex_);
  if (!has_ended(rank_)) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    // These are the words in the peer's memory for which this rank's streams wait.
    const Count& count = counts_[static_cast<size_t>(peer)];
    std::atomic_ref(*left_word(peer, rank_)).store(count.taken + kFar);
    std::atomic_ref(*taken_word(peer, rank_)).store(count.left + kFar);
  }
}

HostMailboxes::Pieces MailboxLink::Row::cut(size_t most) {
  HostMailboxes::Pieces out;
  while (most > 0 && !pieces_.empty()) {
    std::span<std::byte>& first = pieces_.front();
    const size_t bytes = std::min(most, first.size());
    out.push_back(first.first(bytes));
    most -= bytes;
    first = first.subspan(bytes);
    if (first.empty()) pieces_.erase(pieces_.begin());
  }
  return out;
}

Error MailboxLink::begin() { return mailboxes_.use(stream_); }

Error MailboxLink::send(int peer, const DeviceBytes& message, Stream) {
  sends_[peer].add({message.data, message.size});
  return {};
}

Error MailboxLink::receive(int peer, const DeviceBytes& message, Stream) {
  receives_[peer].add({message.data, message.size});
  return {};
}

// Goes through all peers once per turn. Posts come before receives, because the device may run both
// streams in one queue. A rank that waits for a free slot therefore waits only for work that other
// ranks have enqueued some turns before.
Error MailboxLink::move(Stream takes) {
  while (!sends_.empty() || !receives_.empty()) {
    for (auto& [peer, row] : sends_)
      if (Error error = mailboxes_.post(peer, row.cut(mailboxes_.most()), stream_)) return error;
    for (auto& [peer, row] : receives_)
      if (Error error = mailboxes_.receive(peer, row.cut(mailboxes_.most()), takes)) return error;
    for (Rows* rows : {&sends_, &receives_})
      std::erase_if(*rows, [](const auto& one) { return one.second.empty(); });
  }
  return {};
}

Error MailboxLink::end() {
  const auto takes = mailboxes_.fork(stream_);
  if (!takes.ok()) return takes.error();
  const Error error = move(takes.value());
  // also after an error, because the side stream may use memory
  const Error joined = mailboxes_.join(stream_);
  if (error || joined) return error ? error : joined;
  return mailboxes_.end_use(stream_);
}

}  // namespace ringdist::gpu
