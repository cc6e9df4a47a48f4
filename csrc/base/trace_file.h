// A TraceRecorder as a file: events of Chrome's trace format (the JSON array of "Trace Event
// Format"), one in a line, so that what is there of a process that was killed can be read.
//
// ph "M" (metadata): process_name (args.name), thread_name of each track, "start" (ts, and
// args.start_time_since_epoch_in_micros, of the same moment), "clock" (ts, and
// args.offset_us: what another clock says, less this one). ph "X": a span, ph "i": a moment. ts,
// dur: microseconds of the monotonic clock. pid: the rank.
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

class TraceFile final : public TraceRecorder {
 public:
  // A new file, in place of one that is there. `name`: the process', for people. Error: kSystem, it
  // cannot be written. In a child of fork() it does nothing.
  static Result<std::shared_ptr<TraceFile>> create(const std::string& path, int rank,
                                                   const std::string& name);
  ~TraceFile() override;

  void add(const TraceSpan& span) noexcept override;
  // At `at` another process' clock was that much ahead of this one.
  void set_clock(TimePoint at, Duration ahead);
  // All that was added is in the file.
  void flush();

 private:
  using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

  TraceFile(File file, int rank);
  int track(const std::string& name) RINGDIST_REQUIRES(mutex_);
  bool forked() const;
  void put(const std::string& event);
  void run();

  const std::string rank_;
  const int pid_;
  std::mutex writing_;  // before mutex_
  File file_ RINGDIST_GUARDED_BY(writing_);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_ RINGDIST_GUARDED_BY(mutex_);  // to be written
  std::map<std::string, int> tracks_ RINGDIST_GUARDED_BY(mutex_);
  bool ends_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ringdist
