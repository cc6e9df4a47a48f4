// Finds out for whom the calls wait that a rank has made by name: when one has been open for half a
// second, it asks rank 0, which asks all, and tells all. A state machine: no threads, no clock, no
// I/O; one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "negotiation/stall/stall_query.h"

namespace ringdist {

// What a StallInspector needs of who runs it; called in its functions.
class StallDelegate {
 public:
  struct OpenCall {
    std::string name;
    TimePoint since;
  };

  virtual ~StallDelegate() = default;

  virtual void send_stall(int rank, std::vector<std::byte> letter) = 0;
  // "rank 3 (pid 123 on host x)"
  virtual std::string describe_rank(int rank) const = 0;
  // Made by this rank, and not by all, as far as it knows.
  virtual std::vector<OpenCall> open_calls() const = 0;
  virtual bool has_joined() const = 0;
  // What this process does besides, in words; empty: nothing.
  virtual std::string elsewhere() const = 0;
  // For people.
  virtual void warn(const std::string& text) = 0;
};

class StallInspector {
 public:
  // `delegate` outlives it. `warn_after`: that long a call waits until people hear of it, and again
  // after as long; 0: never.
  StallInspector(StallDelegate& delegate, int rank, int size, Duration warn_after);

  // Every few tens of milliseconds while calls are open.
  void tick(TimePoint now);
  // Error: kProtocol, it makes no sense.
  Error receive(int rank, ConstBytes letter, TimePoint now);
  // Of an open call, for whom it waits, as found last; empty: that is not known.
  std::string awaits(const std::string& name) const;

 private:
  static constexpr Duration kPatience = std::chrono::milliseconds(500);
  static constexpr Duration kLongest = std::chrono::seconds(60);  // from one question to the next
  static constexpr Duration kAnswerTime = std::chrono::seconds(1);
  static constexpr Duration kRecent = std::chrono::seconds(1);

  void ask(const std::vector<StallDelegate::OpenCall>& calls, TimePoint now);
  bool turns_late(const StallDelegate::OpenCall& call, TimePoint now) const;
  void send(int rank, const StallMessage& letter, TimePoint now);
  void obey(int rank, const StallMessage& letter, TimePoint now);
  void inquire(TimePoint now);
  StallMessage answer_to(const StallMessage& inquiry) const;
  bool answer_at_once(int rank, const StallMessage& letter, TimePoint now);
  void conclude(TimePoint now);
  void warn_of(const std::vector<StallFinding>& found, TimePoint now);
  void give_up(const std::vector<StallDelegate::OpenCall>& calls, TimePoint now);

  StallDelegate& delegate_;
  const int rank_;
  const int size_;
  const Duration warn_after_;
  std::map<std::string, std::string> found_;  // by name

  // As one that asks.
  Duration interval_ = kPatience;
  TimePoint next_ask_ = TimePoint::min();
  TimePoint last_look_ = TimePoint::min();
  bool asked_ = false;  // and not told since
  bool asked_again_ = false;
  bool asked_late_ = false;  // for one that is late
  TimePoint asked_at_;

  // As rank 0.
  StallQuery inquiry_;
  TimePoint closed_ = TimePoint::min();    // the last inquiry
  std::vector<StallFinding> last_found_;   // by it
  std::map<std::string, TimePoint> said_;  // of what people have heard, and when
};

}  // namespace ringdist
