// What the control plane knows, for humans. Control thread only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "control/control_connection.h"
#include "control/control_groups.h"
#include "control/control_history.h"
#include "control/control_peers.h"

namespace ringdist {

// "pid 123 on host X"; "context 0123456789abcdef" if nobody has said more.
std::string name_of(uint64_t id, const ControlGroupTable& groups,
                    const ControlPeerTable& processes);

// Groups and processes, a line each. `suspect_after`: a silence that is marked.
std::string report_links(const ControlGroupTable& groups, const ControlPeerTable& processes,
                         const ConnectionView& reach, Duration suspect_after, TimePoint now);

// From a thread of its own: who should read stderr may be stuck, too. While one text is on its way
// nothing else is written.
class StderrReport {
 public:
  bool busy() const { return *busy_; }
  void write(std::string text);

 private:
  // The thread may outlive us.
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>();
};

}  // namespace ringdist
