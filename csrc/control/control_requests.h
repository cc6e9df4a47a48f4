// Those who asked the control plane and wait. Each is answered once, whatever happens: with what
// RequestEvaluator knows, what was thrown meanwhile, or that the control plane has stopped. Control
// thread only.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "control/control_connection.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

// What those hear who ask the control plane and wait: whether a process shares our host, whether a
// group is linked, whether all of it is. No answer yet: nothing. Control thread only.
class RequestEvaluator {
 public:
  // `id`: this process.
  RequestEvaluator(uint64_t id, ControlPeerTable& processes, const ControlHistory& ledger,
                   const FormationBarrier& arrivals, const ConnectionView& reach)
      : id_(id),
        processes_(processes),
        history_(ledger),
        formation_barrier_(arrivals),
        connections_view_(reach) {}

  // Success once the process has answered on its abstract socket. `who`: its name.
  std::optional<Error> proof(uint64_t id, const std::string& who, bool expired);
  // Success once all links that the group needs of this process are up.
  std::optional<Error> links(uint64_t nonce, const ControlGroup& group, bool expired);
  // Success once all members have connected, but for those that have left: of these the engine
  // tells.
  std::optional<Error> formed(uint64_t nonce, const ControlGroup& group, bool expired) const;

 private:
  std::optional<Error> missing(const ControlGroup& group, uint64_t id, LinkKind kind, bool expired);

  const uint64_t id_;
  ControlPeerTable& processes_;
  const ControlHistory& history_;
  const FormationBarrier& formation_barrier_;
  const ConnectionView& connections_view_;
};

struct ControlRequest {
  enum class Kind : uint8_t {
    kProof,  // that process `id` shares our host
    kGroup,  // that group `id` is linked and all of it is there
  };

  Kind kind = Kind::kGroup;
  uint64_t id = 0;
  const CancellableDeadline* deadline = nullptr;  // its caller's, who waits
  std::shared_ptr<std::promise<Error>> answer;
};

class ControlRequests {
 public:
  struct Delegate {
    virtual ~Delegate() = default;
    // All links that the group needs of this process are up, for the first time.
    virtual void on_linked(uint64_t nonce) = 0;
  };

  // What those hear who ask too late.
  static Error stopped() noexcept;

  ControlRequests(ControlGroupTable& groups, ControlPeerTable& processes, RequestEvaluator& answers,
                  Delegate& delegate)
      : groups_(groups), processes_(processes), evaluator_(answers), delegate_(delegate) {}

  void prove(const ControlRequest& request, const std::string& unix_name);
  // `begin` joins the group; what it throws is the answer.
  template <typename Begin>
  void connect(const ControlRequest& request, Begin&& begin) {
    accept(request, begin, [] {});
  }

  bool empty() const { return waiting_.empty(); }
  // The processes that are to be proven.
  std::vector<uint64_t> proofs() const;
  // Whether that process is one of them.
  bool proving(uint64_t process) const;
  // Answers those that can be.
  void answer_ready(TimePoint now);
  // Answers all, also those to come.
  void stop();

 private:
  // `then` throws nothing.
  template <typename Begin, typename Then>
  void accept(const ControlRequest& request, Begin&& begin, Then&& then) {
    if (stopped_) return request.answer->set_value(stopped());
    try {
      begin();
      waiting_.push_back(request);
    } catch (...) {
      return request.answer->set_value(current_exception_error());
    }
    then();
  }
  std::optional<Error> answer_to(const ControlRequest& request, TimePoint now);
  std::optional<Error> group_answer(const ControlRequest& request, TimePoint now);

  ControlGroupTable& groups_;
  ControlPeerTable& processes_;
  RequestEvaluator& evaluator_;
  Delegate& delegate_;
  std::vector<ControlRequest> waiting_;
  bool stopped_ = false;
};

}  // namespace ringdist
