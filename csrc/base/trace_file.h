// TraceRecorder that writes a file in Chrome's trace format (the JSON array of "Trace Event
// Format"). It writes one event per line, so that the file of a process that was killed is still
// readable. A thread of its own writes.
//
// Event types are "M" (metadata), "X" (a span) and "i" (a moment). `ts` and `dur` are microseconds
// of the monotonic clock; `pid` is the rank. Metadata events and their fields are:
//
//   process_name  Field args.name.
//   thread_name   Field args.name. There is one for each track.
//   start         Fields ts and args.start_time_since_epoch_in_micros, of the same moment.
//   clock         Fields ts and args.offset_us (time of another process' clock minus this one's).
//
// Any thread may call any function. In a forked child, add() and the destructor do nothing; no
// other function may be called there, because the lock may be held.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "base/trace_recorder.h"

namespace ringdist {

// Trace file of one process.
class TraceFile final : public TraceRecorder {
 public:
  // Creates the file and replaces an existing one. `name` is a name of the process for people.
  // Error: kSystem, if the file cannot be created or no thread can be started.
  static Result<std::shared_ptr<TraceFile>> create(const std::string& path, int rank,
                                                   const std::string& name);
  ~TraceFile() override;

  void add(const TraceSpan& span) noexcept override;
  // Records that another process' clock was ahead of this one by `ahead` at the time `at`.
  void set_clock(TimePoint at, Duration ahead);
  // Blocks until everything that was added before is in the file.
  void flush();

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  // Starts the thread that writes. Throws std::system_error if there is none.
  TraceFile(File file, int rank);
  // Returns the number of a track. For a new track it first adds the event with its name.
  int track(const std::string& name) RINGDIST_REQUIRES(mutex_);
  // Returns true in a child process of the creator, which has no writer thread.
  bool forked() const;
  void put(const std::string& event);
  // Loop of the writer thread: writes what was added, until `ends_`.
  void run();

  const std::string rank_;
  const int pid_;
  std::mutex writing_;  // guards the file; locked before mutex_
  File file_ RINGDIST_GUARDED_BY(writing_);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_ RINGDIST_GUARDED_BY(mutex_);  // events that are not yet written
  std::map<std::string, int> tracks_ RINGDIST_GUARDED_BY(mutex_);
  bool ends_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringdist
