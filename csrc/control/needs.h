// Whom this process needs, and so which connections it keeps. Control thread only.
#pragma once

#include <cstdint>

#include "control/groups.h"
#include "control/processes.h"
#include "control/reach.h"
#include "control/voice.h"

namespace ringdist {

class ControlNeeds {
 public:
  ControlNeeds(uint64_t id, ControlProcesses& processes, const ControlGroups& groups,
               const ControlReach& reach, ControlVoice& voice)
      : id_(id), processes_(processes), groups_(groups), reach_(reach), voice_(voice) {}

  // Of this process somebody would miss it, so that its end must be noticed.
  bool relied_on(uint64_t process) const;
  // Or it has yet to hear that a group was left.
  bool needed(uint64_t process) const { return relied_on(process) || groups_.has(process); }

  // Tells peers which connections we need, closes those that nobody does, and forgets whom they led
  // to. The lower id closes; until then either side may change its mind.
  void settle();
  // It is gone: its connections close, once what was sent on them has left.
  void drop(uint64_t process);

 private:
  void settle(ControlConnection& connection);

  const uint64_t id_;
  ControlProcesses& processes_;
  const ControlGroups& groups_;
  const ControlReach& reach_;
  ControlVoice& voice_;
};

}  // namespace ringdist
