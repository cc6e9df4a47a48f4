#include "negotiation/negotiation_seat.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "negotiation/stand_in.h"

namespace ringdist {

NegotiationSeat::NegotiationSeat(std::shared_ptr<Communicator> group, NegotiatorOptions options)
    : name_(group->name()),
      rank_(group->rank()),
      options_(options),
      context_(group->context()),
      group_(std::move(group)) {}

void NegotiationSeat::begin(LetterPost& post) {
  post_ = &post;
  negotiator_.emplace(static_cast<NegotiatorHost&>(*this), post.topology(), rank_, options_);
  for (Open& open : std::exchange(waiting_, {})) make(std::move(open));
  if (join_) negotiator_->join();
  settle();
}

void NegotiationSeat::call(Open open) {
  if (cause_) return finish(open.end, cause_);
  if (!negotiator_) return waiting_.push_back(std::move(open));
  make(std::move(open));
  settle();
}

void NegotiationSeat::make(Open open) {
  const auto [at, is_new] = open_.emplace(open.call.name, std::move(open));
  check(is_new, "a name is of one call at a time");
  const NamedCall& call = at->second.call;
  negotiator_->call(call.name, call.description, call.extra);
}

void NegotiationSeat::join(Join join) {
  if (cause_) return finish(join.end, cause_);
  check(!join_, "a rank joins once");
  join_ = std::move(join);
  if (!negotiator_) return;
  negotiator_->join();
  settle();
}

Error NegotiationSeat::on_letter(int rank, ConstBytes letter) {
  if (Error error = negotiator_->receive(rank, letter)) return error;
  settle();
  return {};
}

// Sends what there is to say. Last: the group may end in it.
void NegotiationSeat::settle() {
  if (!post_) return;
  negotiator_->flush();
  if (broken_) return post_->fail(broken_);
  post_->await_letters(!open_.empty() || join_);
}

void NegotiationSeat::send(int rank, std::vector<std::byte> letter) {
  post_->send_letter(rank, std::move(letter));
}

void NegotiationSeat::run(const std::vector<CallTable::EntryPtr>& entries) {
  auto batch = std::make_shared<Batch>();
  Error error = prepare(entries, *batch);
  ++running_;
  if (!error) {
    OpRequest request = batch->take_request();
    request.ended = [seat = weak_from_this(), batch](const Error& why) {
      if (const auto held = seat.lock()) held->ended(*batch, why);
    };
    error = group_->submit(std::move(request), /*will_wait=*/false).error();
  }
  if (!error) return;
  if (!broken_) broken_ = error;
  --running_;
  for (const auto& end : batch->ends()) finish(end, error);
}

// What this rank has of it. Error: the others run what it cannot.
Error NegotiationSeat::prepare(const std::vector<CallTable::EntryPtr>& entries, Batch& batch) {
  Error first;
  for (const auto& entry : entries) {
    auto mine = open_.extract(entry->name);
    auto request =
        mine.empty() ? stand_in_for(entry->description) : mine.mapped().call.request(entry->extras);
    if (!request.ok() && !first) first = request.error();
    batch.add(request.ok() ? std::move(request.value()) : OpRequest(),
              mine.empty() ? nullptr : mine.mapped().end);
  }
  return first;
}

void NegotiationSeat::ended(const Batch& batch, const Error& error) {
  for (const auto& end : batch.ends()) finish(end, error);
  --running_;
  if (cause_) return;
  negotiator_->ran();
  settle();
}

void NegotiationSeat::fail(const std::string& name, const std::string& why) {
  auto mine = open_.extract(name);
  if (mine.empty()) return;
  finish(mine.mapped().end,
         Error(ErrorKind::kMismatch, "ringdist: rank " + std::to_string(rank_) + " of group '" +
                                         name_ + "': '" + name + "': " + why));
}

void NegotiationSeat::all_joined(int last) {
  if (!join_) return;
  const Join join = *std::exchange(join_, std::nullopt);
  *join.last = last;
  finish(join.end, {});
}

Error NegotiationSeat::tick(TimePoint now) {
  for (const auto& [name, open] : open_)
    if (now > open.end->deadline)
      return {ErrorKind::kTimeout,
              "Timed out waiting " +
                  std::to_string(std::chrono::duration_cast<Milliseconds>(open.end->deadline -
                                                                          open.end->started)
                                     .count()) +
                  " ms for all ranks to call '" + name + "', " + open.call.description.words +
                  ", which rank " + std::to_string(rank_) + " has called"};
  if (join_ && now > join_->end->deadline)
    return {ErrorKind::kTimeout, "Timed out waiting for all ranks to join"};
  return {};
}

void NegotiationSeat::end(const Error& cause) noexcept {
  if (!cause_) cause_ = cause;
  post_ = nullptr;
  for (const Open& open : std::exchange(waiting_, {})) finish(open.end, cause_);
  for (const auto& [name, open] : std::exchange(open_, {})) finish(open.end, cause_);
  if (const auto join = std::exchange(join_, std::nullopt)) finish(join->end, cause_);
  // Not here, where it may be the last one to hold it.
  if (auto group = std::exchange(group_, nullptr))
    context_.pool().run([group = std::move(group)] {});
}

void NegotiationSeat::finish(const std::shared_ptr<Op>& op, const Error& error) noexcept {
  executor().finish_op(op, error);
}

std::string NegotiationSeat::dump() const {
  std::string out;
  for (const auto& [name, open] : open_)
    out += "\n   '" + name + "', " + open.call.description.words + ": not called by all ranks";
  return out;
}

}  // namespace ringdist
