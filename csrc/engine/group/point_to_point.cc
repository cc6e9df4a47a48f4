#include "engine/group/point_to_point.h"

#include <algorithm>

#include "plan/planner.h"

namespace ringdist {
namespace {

uint64_t channel_of(const Op& op) {
  return PointToPointId::channel(op.request.envelope->tag, op.request.envelope->origin);
}

// Returns true if the receive accepts messages from `source`.
bool takes(const Op& receive, int source) {
  const int peer = receive.request.envelope->peer;
  return peer == Envelope::kAnySource || peer == source;
}

}  // namespace

void PointToPoint::enqueue(std::shared_ptr<Op> op) {
  if (op->request.device_stream) return on_device_.push_back(std::move(op));
  if (op->request.envelope->sends) return send(std::move(op));
  const uint64_t channel = channel_of(*op);
  waiting_[channel].posted.push_back(std::move(op));
  ++posted_count_;
  match(channel);
}

void PointToPoint::send(std::shared_ptr<Op> op) {
  const int to = op->request.envelope->peer;
  const uint64_t channel = channel_of(*op);
  const Key key{to, PointToPointId::make(channel, sent_[to]++)};
  begin(sends_, std::move(op), key).start();
}

OpExecution& PointToPoint::begin(Runs& runs, std::shared_ptr<Op> op, Key key) {
  op->schedule = message_schedule(op->request, op->plan, key.first);
  return *(runs[key] = make_execution(delegate_, std::move(op), key.second));
}

void PointToPoint::on_message(const MessageHeader& header, const Payload& payload) {
  const Key key{header.source, header.op};
  if (header.type == MessageType::kGrant) {
    if (auto it = sends_.find(key); it != sends_.end()) it->second->on_grant(header);
    return;
  }
  if (auto it = receives_.find(key); it != receives_.end())
    return deliver(*it->second, header, payload);
  if (const Error error = check_unexpected(header, unexpected_.count()))
    return delegate_.fail(error);
  if (!unexpected_.push(key, header, payload)) return;
  const uint64_t channel = PointToPointId::channel(header.op);
  waiting_[channel].arrived.push_back(key);
  match(channel);
}

// Between two calls no posted receive fits any message, so one new receive or one new message makes
// at most one pair.
void PointToPoint::match(uint64_t channel) {
  Waiting& waiting = waiting_[channel];
  for (auto op = waiting.posted.begin(); op != waiting.posted.end(); ++op) {
    const auto key = std::find_if(waiting.arrived.begin(), waiting.arrived.end(),
                                  [&](const Key& one) { return takes(**op, one.first); });
    if (key == waiting.arrived.end()) continue;
    const Key found = *key;
    (*op)->set_source(found.first);
    OpExecution& run =
        begin(receives_, *op, found);  // first: an exception leaves the receive in its list
    waiting.posted.erase(op);
    waiting.arrived.erase(key);
    --posted_count_;
    if (waiting.empty()) waiting_.erase(channel);
    return start(run, found);
  }
}

void PointToPoint::start(OpExecution& run, Key key) {
  run.start();
  for (const UnexpectedMessage& message : unexpected_.take(key))
    if (receives_.contains(key)) deliver(run, message.header, message.payload());
}

void PointToPoint::deliver(OpExecution& run, const MessageHeader& header, const Payload& payload) {
  if (carries_fingerprint(header)) {
    const Fingerprint& ours = run.op()->fingerprint;
    const Fingerprint& theirs = header.fingerprint;
    if (theirs.dtype != ours.dtype || theirs.count != ours.count)
      return delegate_.fail(
          Error(ErrorKind::kMismatch,
                "invalid tensor size or type: rank " + std::to_string(header.source) + " sends " +
                    theirs.describe() + " with tag " +
                    std::to_string(PointToPointId::tag(header.op)) + ", rank " +
                    std::to_string(delegate_.flow.rank) + " receives " + ours.describe())
              .blame(header.source));
  }
  if (header.type == MessageType::kRequest)
    run.on_request(header);
  else
    run.on_data(header, payload);
}

void PointToPoint::finished(const OpExecution& run) {
  Runs& runs = run.op()->request.envelope->sends ? sends_ : receives_;
  const auto it = runs.find({run.peer(), run.number()});
  retire_(std::move(it->second));
  runs.erase(it);
  grant_waiting();
}

void PointToPoint::stop(const OpVisitor& tell) {
  unexpected_.clear();
  for (Runs* runs : {&sends_, &receives_}) end_executions(*runs, tell, retire_);
  for (; !waiting_.empty(); waiting_.erase(waiting_.begin()))
    for (auto& posted = waiting_.begin()->second.posted; !posted.empty(); posted.pop_front())
      tell(posted.front(), nullptr);
  posted_count_ = 0;
  for (; !on_device_.empty(); on_device_.pop_back()) tell(on_device_.back(), nullptr);
}

void PointToPoint::abort_receives(const OpVisitor& tell) {
  for (auto& [channel, of_channel] : waiting_)
    for (auto& posted = of_channel.posted; !posted.empty(); posted.pop_front()) {
      --posted_count_;
      tell(posted.front(), nullptr);
    }
  std::erase_if(waiting_, [](const auto& entry) { return entry.second.empty(); });
}

void PointToPoint::abort_sends(const std::function<bool(const OpExecution& run)>& which,
                               const OpVisitor& tell) {
  for (auto it = sends_.begin(); it != sends_.end();) {
    OpExecutionPtr& run = it->second;
    if (!which(*run)) {
      ++it;
      continue;
    }
    run->stop();
    tell(run->op(), run.get());
    retire_(std::move(run));
    it = sends_.erase(it);
  }
}

bool PointToPoint::is_lowest_receive(const OpExecution& run) const {
  return !receives_.empty() && receives_.begin()->second.get() == &run;
}

void PointToPoint::grant_waiting() {
  if (!receives_.empty()) receives_.begin()->second->grant_waiting();
}

void PointToPoint::for_each(const OpVisitor& each) const {
  for (const auto* runs : {&sends_, &receives_})
    for (const auto& [key, run] : *runs) each(run->op(), run.get());
  for (const auto& [channel, of_channel] : waiting_)
    for (const auto& op : of_channel.posted) each(op, nullptr);
  for (const auto& op : on_device_) each(op, nullptr);
}

std::string PointToPoint::dump() const {
  std::string out;
  for_each([&](const std::shared_ptr<Op>& op, const OpExecution* run) {
    out += "\n   " + (run != nullptr              ? run->dump()
                      : op->request.device_stream ? dump_on_device(*op)
                                                  : op->describe() + ": nothing has arrived");
  });
  unexpected_.for_each([&](const Key& key, size_t count) {
    out += "\n   from rank " + std::to_string(key.first) + ", tag " +
           std::to_string(PointToPointId::tag(key.second)) + ": " + std::to_string(count) +
           " messages wait for a receive";
  });
  return out;
}

}  // namespace ringdist
