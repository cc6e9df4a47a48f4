// Timeline of the named calls of all ranks, for display. Each rank records its calls to a file of
// its own (base/trace_file.h). At the end, rank 0 collects the files of other hosts.
//
// Clocks of other hosts are compared with that of rank 0 as in NTP (RFC 5905, section 8): of
// several exchanges, the shortest counts.
//
// A state machine without threads and clock. TraceFile writes the files. One thread at a time.
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

// Message of the timeline. The encoding is that of base/serialize.h.
struct TimelineMessage {
  enum class Kind : uint8_t {
    kStart,    // rank 0 to all: start recording
    kPing,     // ranks of other hosts to rank 0: request for its time
    kPong,     // rank 0 to the sender of kPing: its time
    kStop,     // rank 0 to all: stop recording
    kStopped,  // all to rank 0: the file is complete, with its path
    kRead,     // rank 0 to a rank with a file elsewhere: send a part, from an offset on
    kPart,     // to rank 0: a part of the file, or nothing at its end
    kDone,     // rank 0 to all: the file is not needed any more
  };

  Kind kind = Kind::kStart;
  std::string path;           // path of the timeline in kStart, of the rank's own file in kStopped
  bool marks_cycles = false;  // kStart
  bool is_copied = false;     // kDone: rank 0 has a copy of the file
  int64_t time = 0;           // kPing and kPong: the sender's time of kPing, in nanoseconds
  int64_t root_time = 0;      // kPong: time of rank 0, in nanoseconds
  int64_t offset = 0;         // kRead, kPart: offset in bytes
  std::vector<std::byte> bytes;  // kPart

  std::vector<std::byte> encode() const;
  static Result<TimelineMessage> decode(ConstBytes bytes);
};

// Functions that a Timeline calls.
class TimelineDelegate {
 public:
  virtual ~TimelineDelegate() = default;

  virtual void send_timeline(int rank, std::vector<std::byte> message) = 0;
  // Sets the recorder of this process, or removes it if it is null. Returns false if another
  // recorder is active.
  virtual bool record(std::shared_ptr<TraceRecorder> recorder) = 0;
  // Reports on rank 0 that all files are there, or the first error.
  virtual void gathered(const Error& error) = 0;
  // Destroys the object on another thread, because that may take long.
  virtual void discard(std::shared_ptr<void> what) noexcept = 0;
};

// One rank's part of the timeline. Rank 0 starts and stops it.
class Timeline {
 public:
  // `delegate` must outlive it. `who` describes this process for display.
  Timeline(TimelineDelegate& delegate, Topology topology, int rank, std::string who);
  ~Timeline();

  // Returns the path of a rank's file, if its host has the folder.
  static std::string part_of(const std::string& path, int rank) {
    return path + ".rank-" + std::to_string(rank);
  }

  // Starts a timeline on rank 0. `path` is absolute; the files are beside it. Error
  // kInvalidArgument: a timeline or another recorder is active. Error kSystem: the file cannot be
  // written.
  Error start(const std::string& path, bool marks_cycles, TimePoint now);
  // Stops the timeline on rank 0. All ranks stop, and their files are collected beside `path`. Then
  // gathered() is called, possibly during this call.
  void stop();
  // Handles a message of another rank. Error kProtocol: the message is invalid.
  Error receive(int rank, ConstBytes message, TimePoint now);
  // Compares clocks if the last comparison is old. Must be called repeatedly while is_on(), because
  // clocks drift.
  void compare_clocks(TimePoint now);
  // Ends the recording without collecting files. The local file remains.
  void end();

  // Returns true while this rank records.
  bool is_on() const { return file_ != nullptr; }
  // Returns true while this rank records, or rank 0 still needs its file.
  bool is_busy() const { return is_on() || is_awaited_; }
  bool marks_cycles() const { return marks_cycles_; }

 private:
  // Exchanges per comparison of clocks.
  static constexpr int kExchanges = 8;
  // Interval between comparisons.
  static constexpr Duration kCompareTime = std::chrono::seconds(20);
  // Bytes per message of a file.
  static constexpr size_t kPartBytes = size_t{1} << 20;

  int size() const { return static_cast<int>(topology_.host_of.size()); }
  bool is_root() const { return rank_ == 0; }
  // Returns true if the rank is on another host than rank 0.
  bool is_far(int rank) const { return topology_.host_of[rank] != topology_.host_of[0]; }
  void obey(int rank, const TimelineMessage& message, TimePoint now);
  void send(int rank, const TimelineMessage& message);
  void send_all(const TimelineMessage& message);
  // Creates this rank's file.
  Error open(const std::string& path);
  // Begins to record to the file. Returns false if another recorder is active.
  bool begin(const TimelineMessage& start, TimePoint now);
  void ping(TimePoint now);
  void on_pong(const TimelineMessage& pong, TimePoint now);
  // Ends the recording, and reports it to rank 0.
  void finish();
  void on_stopped(int rank, const TimelineMessage& message);
  void send_part(int64_t offset);
  void on_part(int rank, const TimelineMessage& part);
  // On rank 0: begins to read the next file, if there is one.
  void read_next();
  // On rank 0: records that a rank's file is there.
  void has_come(int rank, bool is_copied);
  void fail_part(int rank);

  TimelineDelegate& delegate_;
  const Topology topology_;
  const int rank_;
  const std::string who_;
  std::shared_ptr<TraceFile> file_;
  std::string path_;  // path of the timeline
  std::string own_;   // path of this rank's file
  bool marks_cycles_ = false;

  // Used on other hosts than that of rank 0: the comparison under way and its best exchange.
  int exchanges_left_ = 0;
  Duration shortest_{0};
  Duration ahead_{0};  // difference of rank 0's clock to this one
  TimePoint compared_ = TimePoint::min();
  bool stops_ = false;       // stop after the comparison under way
  bool is_awaited_ = false;  // rank 0 has not confirmed that it has the file

  // Used by rank 0: ranks that have not stopped or sent their file, and the file that is being
  // copied. Files are copied one after another.
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
  std::set<int> awaited_;
  std::deque<int> to_read_;
  File part_{nullptr, std::fclose};
  Error problem_;
};

}  // namespace ringdist
