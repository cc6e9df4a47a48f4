// What the ranks of a group on one host leave for each other, in memory that all of them see and
// that copies of their devices reach: a rank has a box for each other, of a few slots that take
// turns, and says in words beside it how much it has left, and how much it has taken from theirs.
// Streams write and await these words: no thread of a host is asked in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "cuda/api/cuda_api.h"
#include "cuda/stream/copies.h"
#include "cuda/stream/device_link.h"
#include "engine/device/device_runner.h"

namespace ringdist::gpu {

// One thread at a time but for abort() and reassert_abort().
class HostMailboxes {
 public:
  // So many ranks may have them.
  static bool fit(int size);
  // Null, on all ranks alike, where they do not share a host, or are too many. Blocks.
  static Result<std::shared_ptr<HostMailboxes>> make(CudaApi& cuda, RunnerDelegate& group,
                                                     TimePoint deadline);
  ~HostMailboxes();
  HostMailboxes(const HostMailboxes&) = delete;
  HostMailboxes& operator=(const HostMailboxes&) = delete;

  // At most so many bytes go at a time.
  size_t most() const { return most_; }
  // Memory of the device, one piece after another.
  using Pieces = std::vector<std::span<std::byte>>;
  // On the stream: leaves them for `peer`, once that has taken what was there before.
  Error post(int peer, const Pieces& pieces, Stream stream);
  // Takes what `peer` has left, once it is there; as many bytes in all.
  Error receive(int peer, const Pieces& pieces, Stream stream);
  // What is left and taken on this stream comes after what was on another.
  Error use(Stream stream);
  Error end_use(Stream stream);
  // A stream beside `stream`, where work comes after what that holds: what is taken, while more is
  // left, as a device copies both ways at once. `stream` goes on after both from join() on.
  Result<Stream> fork(Stream stream);
  Error join(Stream stream);

  // Nothing waits for another rank from now on, nor is anything left or taken. Any thread.
  void abort();
  // After abort(), again and again: another rank may not know of it yet, and go on writing.
  void reassert_abort();
  // Any rank has aborted: what is taken since may be anything. Any thread.
  bool ended() const;

 private:
  struct Count {
    uint32_t left = 0;   // pieces of work for a peer
    uint32_t taken = 0;  // from it
  };
  struct SideStream {
    Stream stream;
    std::shared_ptr<void> begun, done;  // Events
  };
  HostMailboxes(CudaApi& cuda, RunnerDelegate& group, std::shared_ptr<GroupSharedMemory> memory);
  Result<std::shared_ptr<void>> make_event();
  Result<SideStream> make_side();
  Error pin();
  uint32_t* left_word(int owner, int peer) const { return word(owner, 2 * peer); }
  uint32_t* taken_word(int owner, int peer) const { return word(owner, 2 * peer + 1); }
  uint32_t* ended_word(int owner) const { return word(owner, 2 * size_); }
  bool has_ended(int owner) const;  // our own word changes under the mutex
  uint32_t* word(int owner, int number) const;
  std::byte* slot(int owner, int peer, uint32_t turn) const;
  Result<Count> next(int peer, bool leaves);

  CudaApi& cuda_;
  const int rank_;
  const int size_;
  const std::shared_ptr<GroupSharedMemory> memory_;
  const size_t begin_;  // of the boxes: behind the words
  const size_t most_;
  int pinned_ = 0;  // so many ranks' memory
  Stream last_ = nullptr;
  std::map<Stream, std::shared_ptr<void>> uses_;  // Events: the last use on each
  std::map<Stream, SideStream> sides_;
  std::mutex mutex_;                                       // a leaf
  std::vector<Count> counts_ RINGDIST_GUARDED_BY(mutex_);  // by peer
};

// Moves bytes by way of boxes in the host's memory (host_mailboxes.h): copies of the devices, and
// nothing else, in turns of as much as a box holds. Of one op.
class MailboxLink final : public DeviceLink {
 public:
  MailboxLink(HostMailboxes& mailboxes, Stream stream) : mailboxes_(mailboxes), stream_(stream) {}

  Error begin() override;
  Error send(int peer, const DeviceBytes& message, Stream stream) override;
  Error receive(int peer, const DeviceBytes& message, Stream stream) override;
  Error end() override;

 private:
  // Of one peer, as one row of bytes: the two ranks of a pair cut it alike.
  class Row {
   public:
    void add(std::span<std::byte> piece) { pieces_.push_back(piece); }
    bool empty() const { return pieces_.empty(); }
    // The next ones, of at most so many bytes.
    HostMailboxes::Pieces cut(size_t most);

   private:
    HostMailboxes::Pieces pieces_;
  };
  using Rows = std::map<int, Row>;

  Error move(Stream takes);

  HostMailboxes& mailboxes_;
  const Stream stream_;
  Rows sends_, receives_;
};

}  // namespace ringdist::gpu
