// Reports of the control plane for humans: names of processes, the state of links, and output to
// stderr. Control thread only.
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

// Returns "pid 123 on host X", or "context 0123456789abcdef" if no group or connection gives more.
std::string name_of(uint64_t id, const ControlGroupTable& groups,
                    const ControlPeerTable& processes);

// Returns one line per group and per process. Silences longer than `suspect_after` are marked.
std::string report_links(const ControlGroupTable& groups, const ControlPeerTable& processes,
                         const ConnectionView& connections, Duration suspect_after, TimePoint now);

// Writes reports to stderr from a thread of its own, because the reader of stderr may be stuck,
// too. While one text is being written, further ones are dropped.
class StderrReport {
 public:
  // Returns true while a text is being written.
  bool busy() const { return *busy_; }
  // Writes `text` in the background. Drops it without an exception if no thread can be started.
  void write(std::string text);

 private:
  // Shared, since the thread may outlive this object.
  const std::shared_ptr<std::atomic<bool>> busy_ = std::make_shared<std::atomic<bool>>();
};

}  // namespace ringdist
