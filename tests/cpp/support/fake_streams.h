// Fake streams of devices, for all ranks of a test. Enqueued work runs, in the order of its
// stream, when the test calls progress(). Any thread may enqueue; only one thread at a time may
// call progress().
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace ringdist {

class FakeStreams {
 public:
  // One piece of work. If `arrive` is set, it is called each time that the work is first in its
  // stream, and returns true if the work can run.
  struct Work {
    std::function<bool()> arrive;
    std::function<void()> run;
  };

  void* make() {
    std::lock_guard lock(mutex_);
    Stream*& of_thread = queues_[std::this_thread::get_id()];
    if (shares_queues_ && of_thread != nullptr) return of_thread;
    streams_.push_back(std::make_unique<Stream>());
    return of_thread = streams_.back().get();
  }
  // Makes all streams that a thread creates after this call one stream. This models a device with
  // a single hardware queue, where the streams of a process wait for each other.
  void share_queues() {
    std::lock_guard lock(mutex_);
    shares_queues_ = true;
  }
  void push(void* stream, Work work) {
    std::lock_guard lock(mutex_);
    static_cast<Stream*>(stream)->push_back(std::move(work));
  }

  // Runs everything that can run, and everything that this makes possible, in a random order
  // across streams. Returns true if work is left that cannot run.
  bool progress() {
    for (;;) {
      Work work;
      {
        std::lock_guard lock(mutex_);
        std::vector<Stream*> able;
        bool any = false;
        for (const auto& stream : streams_) {
          if (stream->empty()) continue;
          any = true;
          if (!stream->front().arrive || stream->front().arrive()) able.push_back(stream.get());
        }
        if (able.empty()) return any;
        Stream& chosen = *able[random_() % able.size()];
        work = std::move(chosen.front());
        chosen.pop_front();
      }
      if (work.run) work.run();
    }
  }
  bool idle(void* stream) const { return queued(stream) == 0; }
  size_t queued(void* stream) const {
    std::lock_guard lock(mutex_);
    return static_cast<Stream*>(stream)->size();
  }

 private:
  using Stream = std::deque<Work>;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Stream>> streams_;
  bool shares_queues_ = false;
  std::map<std::thread::id, Stream*> queues_;  // by thread: the stream that it created last
  std::mt19937_64 random_{20261125};
};

}  // namespace ringdist
