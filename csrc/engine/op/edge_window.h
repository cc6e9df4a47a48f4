// How many segments an edge of one op may have on their way: a fixed number, fewer of a compressed
// op whose senders on other hosts share a slow link into this rank (inbound_window.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "engine/op/arithmetic.h"
#include "engine/op/execution_delegate.h"
#include "plan/compiled_schedule.h"

namespace ringdist {

class EdgeWindow {
 public:
  static constexpr int64_t kMost = 8;  // enough for loopback and for 10 Gb/s at 1 ms

  EdgeWindow(const Op& op, Arithmetic& arithmetic, GroupFlowState& flow)
      : arithmetic_(arithmetic), flow_(flow) {
    if (!op.request.codec_map) return;
    int last = -1;  // they are in order of the sender
    for (const auto& [edge, end] : op.schedule->inbound)
      if (std::exchange(last, edge.first) != edge.first && !flow.is_near(edge.first)) ++senders_;
  }

  void begin() {
    if (measures()) flow_.inbound.begin();
  }
  void end(TimePoint now) {
    if (measures()) flow_.inbound.end(now);
  }
  // Of a message that is the first that a grant allowed, when that was.
  void arrived(int peer, size_t bytes, std::optional<TimePoint> granted, TimePoint now) {
    if (!measures() || flow_.is_near(peer)) return;
    flow_.inbound.arrived(bytes, now);
    if (granted) flow_.inbound.answered(now - *granted);
  }

  int64_t segments(int step, int peer) const {
    if (!measures() || flow_.is_near(peer)) return kMost;
    const int64_t share = flow_.inbound.share(senders_);
    if (share == InboundWindow::kUnlimited) return kMost;
    const auto segment = static_cast<int64_t>(arithmetic_.mean_bytes(step));
    return std::clamp<int64_t>(share / std::max<int64_t>(1, segment), 2, kMost);
  }
  // That may be sent before any grant, credit allowing. The link into a receiver is taken to be as
  // fast as that to us.
  int64_t unsolicited(int step, int peer) const {
    const int64_t most = segments(step, peer);
    return most == kMost ? InboundWindow::kUnlimited : most;
  }

 private:
  bool measures() const { return senders_ > 1; }

  Arithmetic& arithmetic_;
  GroupFlowState& flow_;
  int senders_ = 0;  // of a compressed op: ranks of other hosts that send to us
};

}  // namespace ringdist
