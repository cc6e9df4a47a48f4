// One timeline of all ranks, for people to look at: rank 0 has all record what their calls do,
// each in a file of its own (base/trace_file.h), and in the end gathers the files of other hosts.
// Their clocks are compared with that of rank 0 as by NTP (RFC 5905, section 8): of several
// exchanges the one that took the least time counts.
//
// A state machine: no threads, no clock; files are written by TraceFile's. One thread at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/topology.h"
#include "base/trace_file.h"
#include "base/trace_recorder.h"

namespace ringdist {

// What ranks tell each other of a timeline (timeline.h). As bytes: base/serialize.h.
struct TimelineMessage {
  enum class Kind : uint8_t {
    kStart,    // record                                      rank 0 -> all
    kPing,     // what is your time?                          of other hosts -> rank 0
    kPong,     // that                                        rank 0 -> who asked
    kStop,     // record no more                              rank 0 -> all
    kStopped,  // all is written, there                     all -> rank 0
    kRead,     // send what is written, from there on       rank 0 -> who has stopped elsewhere
    kPart,     // some of it; nothing: that is all          -> rank 0
    kDone,     // rank 0 needs no more of it                rank 0 -> who has stopped
  };

  Kind kind = Kind::kStart;
  std::string path;              // kStart: of the whole; kStopped: where this rank has written
  bool marks_cycles = false;     // kStart
  bool is_copied = false;        // kDone: rank 0 has a file of its own
  int64_t time = 0;              // kPing: of who asks; kPong: the same; nanoseconds
  int64_t root_time = 0;         // kPong
  int64_t offset = 0;            // kRead, kPart: bytes
  std::vector<std::byte> bytes;  // kPart

  std::vector<std::byte> encode() const;
  static Result<TimelineMessage> decode(ConstBytes bytes);
};

// What a Timeline needs of who runs it; called in its functions.
class TimelineDelegate {
 public:
  virtual ~TimelineDelegate() = default;

  virtual void send_timeline(int rank, std::vector<std::byte> letter) = 0;
  // Of all that this process does from now on; null: no more. False: it is recorded otherwise.
  virtual bool record(std::shared_ptr<TraceRecorder> recorder) = 0;
  // What rank 0 has asked for is there, or not all of it, and why.
  virtual void gathered(const Error& error) = 0;
  // Elsewhere: to end it may take long.
  virtual void discard(std::shared_ptr<void> what) noexcept = 0;
};

class Timeline {
 public:
  // `delegate` outlives it; `who`: this process, for people.
  Timeline(TimelineDelegate& delegate, Topology topology, int rank, std::string who);
  ~Timeline();

  // Where a rank writes that has that folder.
  static std::string part_of(const std::string& path, int rank) {
    return path + ".rank-" + std::to_string(rank);
  }

  // On rank 0. `path`: of the whole, absolute; this writes beside it. Error: kInvalidArgument,
  // there is one; kSystem, it cannot be written.
  Error start(const std::string& path, bool marks_cycles, TimePoint now);
  // On rank 0: all stop, and what they have written comes beside `path`. Then gathered(), maybe at
  // once.
  void stop();
  // Error: kProtocol, it makes no sense.
  Error receive(int rank, ConstBytes letter, TimePoint now);
  // Now and then while is_on(): clocks drift.
  void compare_clocks(TimePoint now);
  // It goes no further; what was recorded is in the files.
  void end();

  bool is_on() const { return file_ != nullptr; }
  // Or rank 0 does not have what it has written.
  bool is_busy() const { return is_on() || is_awaited_; }
  bool marks_cycles() const { return marks_cycles_; }

 private:
  static constexpr int kExchanges = 8;
  static constexpr Duration kCompareTime = std::chrono::seconds(20);
  static constexpr size_t kPartBytes = size_t{1} << 20;

  int size() const { return static_cast<int>(topology_.host_of.size()); }
  bool is_root() const { return rank_ == 0; }
  bool is_far(int rank) const { return topology_.host_of[rank] != topology_.host_of[0]; }
  void obey(int rank, const TimelineMessage& letter, TimePoint now);
  void send(int rank, const TimelineMessage& letter);
  void send_all(const TimelineMessage& letter);
  Error open(const std::string& path);
  bool begin(const TimelineMessage& start, TimePoint now);
  void ping(TimePoint now);
  void on_pong(const TimelineMessage& pong, TimePoint now);
  void finish();
  void on_stopped(int rank, const TimelineMessage& letter);
  void send_part(int64_t offset);
  void on_part(int rank, const TimelineMessage& part);
  void read_next();
  void has_come(int rank, bool is_copied);
  void fail_part(int rank);

  TimelineDelegate& delegate_;
  const Topology topology_;
  const int rank_;
  const std::string who_;
  std::shared_ptr<TraceFile> file_;
  std::string path_;  // of the whole
  std::string own_;   // where this rank has written
  bool marks_cycles_ = false;

  // Of a rank on another host than rank 0: exchanges of this comparison, and its best.
  int exchanges_left_ = 0;
  Duration shortest_{0};
  Duration ahead_{0};  // how much rank 0's clock is
  TimePoint compared_ = TimePoint::min();
  bool stops_ = false;       // once the last comparison is done
  bool is_awaited_ = false;  // rank 0 has not said that it has it all

  // Of rank 0: who has not stopped, or sent its part; those parts come one after another.
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  std::set<int> awaited_;
  std::deque<int> to_read_;
  File part_{nullptr, std::fclose};
  Error problem_;
};

}  // namespace ringdist
