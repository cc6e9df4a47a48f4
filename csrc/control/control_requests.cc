#include "control/control_requests.h"

#include <algorithm>
#include <utility>

#include "control/control_report.h"

namespace ringdist {

using Kind = ControlRequest::Kind;

Error ControlRequests::stopped() noexcept {
  try {
    return Error(ErrorKind::kAborted, "the control plane has been stopped");
  } catch (...) {
    return current_exception_error();
  }
}

void ControlRequests::prove(const ControlRequest& request, const std::string& unix_name) {
  ControlPeer* peer = nullptr;
  const auto begin = [&] {
    peer = &processes_[request.id];
    peer->unix_name = unix_name;
  };
  accept(request, begin, [&] {
    peer->proven = true;
    peer->link(LinkKind::kLocal).forget_refusals();
  });
}

std::vector<uint64_t> ControlRequests::proofs() const {
  std::vector<uint64_t> out;
  for (const ControlRequest& request : waiting_)
    if (request.kind == Kind::kProof) out.push_back(request.id);
  return out;
}

bool ControlRequests::proving(uint64_t process) const {
  return std::ranges::any_of(waiting_, [process](const ControlRequest& one) {
    return one.kind == Kind::kProof && one.id == process;
  });
}

void ControlRequests::answer_ready(TimePoint now) {
  for (size_t i = 0; i < waiting_.size();) {
    const auto answer = answer_to(waiting_[i], now);
    if (!answer) {
      ++i;
      continue;
    }
    const ControlRequest request = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    const bool failed_proof = request.kind == Kind::kProof && *answer && !proving(request.id);
    if (ControlPeer* peer = processes_.find(request.id); failed_proof && peer != nullptr)
      peer->proven = false;
    request.answer->set_value(*answer);
  }
}

void ControlRequests::stop() {
  stopped_ = true;
  const Error why = stopped();
  for (const ControlRequest& request : std::exchange(waiting_, {})) request.answer->set_value(why);
}

// What is thrown is the answer.
std::optional<Error> ControlRequests::answer_to(const ControlRequest& request, TimePoint now) {
  try {
    if (request.kind == Kind::kGroup) return group_answer(request, now);
    const std::string who = name_of(request.id, groups_, processes_);
    return evaluator_.proof(request.id, who, request.deadline->expired(now));
  } catch (...) {
    return current_exception_error();
  }
}

std::optional<Error> ControlRequests::group_answer(const ControlRequest& request, TimePoint now) {
  ControlGroup* group = groups_.find(request.id);
  if (group == nullptr || group->left() || request.deadline->cancelled)
    return Error(ErrorKind::kAborted, "the group was destroyed while it connected");
  // What calls it off meanwhile is seen the next time, and is no timeout.
  const bool expired = request.deadline->expired(now);
  const auto linked = evaluator_.links(request.id, *group, expired);
  if (!linked || *linked) return linked;
  if (!group->connected) {
    delegate_.on_linked(request.id);
    group->connect(now);
  }
  return evaluator_.formed(request.id, *group, expired);
}

}  // namespace ringdist
