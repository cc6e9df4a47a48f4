#include "membership/lineage.h"

#include <utility>

#include "base/serialize.h"

namespace ringdist {

Lineage::Lineage(ProcessId self, const Origin& origin, const Pace& pace, Post& post,
                 std::shared_ptr<LineageOwner> owner, Later later)
    : self_(self),
      nonce_(origin.nonce),
      post_(post),
      owner_(std::move(owner)),
      later_(std::move(later)),
      generations_(self, {0, origin.nonce}, origin.members, pace,
                   static_cast<GenerationsHost&>(*this)) {}

// First who is near and gone: their deaths are known before anybody is asked.
void Lineage::begin(TimePoint now) {
  now_ = now;
  watch(now);
  generations_.begin(now);
}

void Lineage::begin_after(uint32_t generation, TimePoint now) {
  if (generations_.generation().number == generation) begin(now);
}

void Lineage::on_letter(ProcessId from, ConstBytes letter, TimePoint now) {
  now_ = now;
  if (letter.empty()) return give_up(from, now);
  const auto message = decode_consensus(letter);
  if (!message.ok()) return;
  generations_.on_message(from, message.value(), now);
  watch(now);  // it may be kept until the end of one of those is known
}

void Lineage::on_death(ProcessId process, TimePoint now) {
  now_ = now;
  generations_.on_death(process, now);
}

void Lineage::give_up(ProcessId process, TimePoint now) {
  now_ = now;
  generations_.give_up(process, now);
}

void Lineage::tick(TimePoint now) {
  now_ = now;
  const auto at = generations_.next();
  if (!at) return;
  watch(now);
  if (*at <= now) generations_.tick(now);
}

void Lineage::watch(TimePoint now) {
  for (const ProcessId process : generations_.members())
    if (process != self_)
      if (const auto to = owner_->recipient(process); to && to->kind == LinkKind::kLocal)
        post_.watch(*to, nonce_, now);
}

bool Lineage::is_near(ProcessId process) {
  const auto to = owner_->recipient(process);
  return to && to->kind == LinkKind::kLocal;
}

void Lineage::send(ProcessId to, const ConsensusMessage& message) {
  (void)write(to, message, /*certain=*/false);
}

bool Lineage::send_near(ProcessId to, const ConsensusMessage& message) {
  return write(to, message, /*certain=*/true);
}

bool Lineage::write(ProcessId process, const ConsensusMessage& message, bool certain) {
  const auto to = owner_->recipient(process);
  if (!to) return false;
  Writer out;
  out.put(nonce_);
  auto bytes = out.take();
  const auto body = encode(message);
  bytes.insert(bytes.end(), body.begin(), body.end());
  return post_.send(*to, nonce_, bytes, certain, now_);
}

void Lineage::read_vote(const Ballot& ballot) {
  const GenerationId generation = generations_.generation();
  owner_->read_vote(generation, [later = later_, generation,
                                 ballot](const Result<std::optional<Accepted>>& vote) {
    later([generation, ballot, vote](Lineage& self, TimePoint now) {
      self.now_ = now;
      self.generations_.on_vote_read(generation, ballot, vote, now);
    });
  });
}

void Lineage::cast_vote(const Ballot& ballot, const std::optional<Accepted>& before,
                        const Accepted& vote) {
  const GenerationId generation = generations_.generation();
  owner_->cast_vote(generation, before, vote, [later = later_, generation, ballot](bool cast) {
    later([generation, ballot, cast](Lineage& self, TimePoint now) {
      self.now_ = now;
      self.generations_.on_vote_cast(generation, ballot, cast, now);
    });
  });
}

}  // namespace ringdist
