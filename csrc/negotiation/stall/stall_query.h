// What rank 0 hears of calls that wait: from the ranks that ask, then from all. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "negotiation/stall/stall_message.h"

namespace ringdist {

class StallQuery {
 public:
  // Of one inquiry; more wait for the next one.
  static constexpr size_t kNames = 16;

  explicit StallQuery(int size) : size_(size) {}

  // Some rank asks for those: the next inquiry's, where they are not of this one.
  void add(const std::vector<StalledCall>& calls);
  bool has_calls() const { return !next_.empty(); }

  // A new one, with what was added.
  void begin(TimePoint now);
  bool is_open() const { return is_open_; }
  uint32_t number() const { return number_; }
  TimePoint begun() const { return begun_; }
  std::vector<std::string> names() const;
  // Of this one; each rank's first counts.
  void answer(int rank, const StallMessage& letter);
  bool all_have_answered() const { return static_cast<int>(answers_.size()) == size_; }

  // Ends it: for whom those calls wait that somebody has made, and not all have. `describe_rank`: a
  // rank's name.
  std::vector<StallFinding> close(const std::function<std::string(int)>& describe_rank);
  // Which of these are late, and a line about all of them: "'a' (for 61 s) and 2 more wait for
  // rank 1 ..., which ..."
  std::vector<std::string> late(const std::vector<StallFinding>& found) const;
  std::string line(const std::vector<StallFinding>& found) const;

 private:
  struct Answer {
    uint64_t lacks;
    bool has_joined;
    std::string instead;
  };

  std::string awaited(size_t name, const std::function<std::string(int)>& describe_rank) const;

  const int size_;
  std::map<std::string, StalledCall> next_;  // by name
  std::vector<StalledCall> calls_;
  std::map<int, Answer> answers_;  // by rank
  uint32_t number_ = 0;
  TimePoint begun_;
  bool is_open_ = false;
};

}  // namespace ringdist
