// The streams of devices that are not there, of all ranks of a test: what is enqueued runs when the
// test says so, in the order of its stream. Any thread may enqueue; one at a time calls progress().
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
  // `arrive`, if any, is called each time that the stream stands at it, and says whether it can
  // run.
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
  // Streams that one thread makes from now on are one: so do those of a process wait for each other
  // where its device has a single queue.
  void share_queues() {
    std::lock_guard lock(mutex_);
    shares_queues_ = true;
  }
  void push(void* stream, Work work) {
    std::lock_guard lock(mutex_);
    static_cast<Stream*>(stream)->push_back(std::move(work));
  }

  // Does what can be done, one piece of one stream after another in a random order, and what that
  // makes possible. True if anything was left that cannot.
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
  std::map<std::thread::id, Stream*> queues_;  // the last that each made
  std::mt19937_64 random_{20261125};
};

}  // namespace ringdist
