// Finds out which ranks the open calls of this rank wait for. When a call has been open for half a
// second, the rank queries rank 0. Rank 0 queries all ranks, and sends the result to all.
//
// A state machine without threads, clock and I/O; one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "negotiation/stall/stall_query.h"

namespace ringdist {

// Functions that a StallInspector calls.
class StallDelegate {
 public:
  // A call of this rank that has not been run.
  struct OpenCall {
    std::string name;
    TimePoint since;
  };

  virtual ~StallDelegate() = default;

  virtual void send_stall(int rank, std::vector<std::byte> message) = 0;
  // Returns the name of a rank, such as "rank 3 (pid 123 on host x)".
  virtual std::string describe_rank(int rank) const = 0;
  // Returns calls that this rank has made and that, by its own state, not all ranks have made.
  virtual std::vector<OpenCall> open_calls() const = 0;
  // Returns true if this rank has joined.
  virtual bool has_joined() const = 0;
  // Returns what this process does besides named calls, in words, or "" if it does nothing.
  virtual std::string elsewhere() const = 0;
  // Warns the user.
  virtual void warn(const std::string& text) = 0;
};

// One rank's part of stall queries. Rank 0 also has the StallQuery.
class StallInspector {
 public:
  // `delegate` must outlive it. A warning is issued when a call has waited for `warn_after`, and
  // again after each further period. Zero disables warnings.
  StallInspector(StallDelegate& delegate, int rank, int size, Duration warn_after);

  // Must be called every few tens of milliseconds while calls are open.
  void tick(TimePoint now);
  // Handles a message of another rank. Error kProtocol: the message is invalid.
  Error receive(int rank, ConstBytes message, TimePoint now);
  // Returns the ranks that an open call waits for, from the last result. Returns "" if there is no
  // result.
  std::string awaits(const std::string& name) const;

 private:
  // age of a call before a query
  static constexpr Duration kTimeLimit = std::chrono::milliseconds(500);
  // longest interval between two queries of a rank
  static constexpr Duration kLongest = std::chrono::seconds(60);
  // Time after which a query counts as unanswered.
  static constexpr Duration kAnswerTime = std::chrono::seconds(1);
  // Age up to which rank 0 answers with its last result.
  static constexpr Duration kRecent = std::chrono::seconds(1);

  // Sends the calls to rank 0.
  void ask(const std::vector<StallDelegate::OpenCall>& calls, TimePoint now);
  // Returns true if a warning about the call became due since the last tick.
  bool turns_late(const StallDelegate::OpenCall& call, TimePoint now) const;
  void send(int rank, const StallMessage& message, TimePoint now);
  // Handles a valid message.
  void obey(int rank, const StallMessage& message, TimePoint now);
  // On rank 0: begins a query.
  void inquire(TimePoint now);
  // Returns this rank's answer to a query.
  StallMessage answer_to(const StallMessage& query) const;
  // On rank 0: sends the last result if it is recent and has all calls. Returns true if it did.
  bool answer_at_once(int rank, const StallMessage& message, TimePoint now);
  // On rank 0: ends the query and sends its result.
  void conclude(TimePoint now);
  // On rank 0: warns about late calls that were not reported recently.
  void warn_of(const std::vector<StallFinding>& found, TimePoint now);
  // Handles a query that was not answered in time.
  void give_up(const std::vector<StallDelegate::OpenCall>& calls, TimePoint now);

  StallDelegate& delegate_;
  const int rank_;
  const int size_;
  const Duration warn_after_;
  std::map<std::string, std::string> found_;  // by name

  // State of a rank that queries.
  Duration interval_ = kTimeLimit;  // until the next query; doubles up to kLongest
  TimePoint next_ask_ = TimePoint::min();
  TimePoint last_look_ = TimePoint::min();
  bool asked_ = false;        // a query has been sent, and its result is missing
  bool asked_again_ = false;  // the query was repeated
  bool asked_late_ = false;   // the query has a late call
  TimePoint asked_at_;

  // State of rank 0.
  StallQuery query_;
  TimePoint closed_ = TimePoint::min();    // end of the last query
  std::vector<StallFinding> last_found_;   // result of the last query
  std::map<std::string, TimePoint> said_;  // calls with a warning, and its time
};

}  // namespace ringdist
