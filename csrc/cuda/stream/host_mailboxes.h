// Mailboxes between the devices of ranks on one host. They are in shared memory that all ranks map
// and pin, so that devices can copy to and from it.
//
// Each rank owns one mailbox per peer, with a few slots that are used in turn. Two words per peer
// count the messages that were posted to it and received from it. Streams write these words and
// wait for them, so no thread of the host takes part.
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

// Shared memory, counters and side streams of one group. One thread at a time, except for abort(),
// reassert_abort() and ended().
class HostMailboxes {
 public:
  // Returns true if mailboxes of a useful size are possible for a group of `size` ranks.
  static bool fit(int size);
  // Creates the mailboxes. Returns null on all ranks if they do not share a host, are too many, or
  // cannot pin the memory. All ranks must call it. Blocks until `deadline` at most.
  static Result<std::shared_ptr<HostMailboxes>> make(CudaApi& cuda, RunnerDelegate& group,
                                                     TimePoint deadline);
  ~HostMailboxes();
  HostMailboxes(const HostMailboxes&) = delete;
  HostMailboxes& operator=(const HostMailboxes&) = delete;

  // Returns the most bytes of one message.
  size_t most() const { return most_; }
  // Memory of the device, as consecutive pieces.
  using Pieces = std::vector<std::span<std::byte>>;
  // Enqueues copies of the pieces to a slot for `peer`, of at most most() bytes together. The
  // stream first waits until the peer has received the message that was in this slot. Errors:
  // kAborted after abort(), and those of CudaApi.
  Error post(int peer, const Pieces& pieces, Stream stream);
  // Enqueues copies of the next message of `peer` into the pieces. The stream waits until the peer
  // has posted it. The sizes must agree. Errors: those of post().
  Error receive(int peer, const Pieces& pieces, Stream stream);
  // Order the use of the mailboxes across streams. Work after use() comes after the work that
  // another stream had before end_use().
  Error use(Stream stream);
  Error end_use(Stream stream);
  // fork() returns a side stream, for receives while `stream` posts, because a device copies in
  // both directions at once. The side stream starts after the work that `stream` holds. join()
  // makes `stream` wait for the side stream.
  Result<Stream> fork(Stream stream);
  Error join(Stream stream);

  // Ends all waits for other ranks and makes later calls fail. Data is invalid from then on. Any
  // thread.
  void abort();
  // Repeats what abort() does to the words. It must be called repeatedly, because other ranks may
  // not have seen the abort and still write words.
  void reassert_abort();
  // Returns true if any rank has aborted. Data received since then may be invalid. Any thread.
  bool ended() const;

 private:
  // Numbers of all messages to and from one peer, modulo 2^32.
  struct Count {
    uint32_t left = 0;   // posted to the peer
    uint32_t taken = 0;  // received from the peer
  };
  // Side stream of one stream, with events for fork() and join().
  struct SideStream {
    Stream stream;
    std::shared_ptr<void> begun, done;  // Events
  };
  HostMailboxes(CudaApi& cuda, RunnerDelegate& group, std::shared_ptr<GroupSharedMemory> memory);
  Result<std::shared_ptr<void>> make_event();
  Result<SideStream> make_side();
  // Pins the memory of all ranks.
  Error pin();
  // Words in the memory of `owner`. The left word counts its posts to `peer`, and the taken word
  // counts its receives from `peer`.
  uint32_t* left_word(int owner, int peer) const { return word(owner, 2 * peer); }
  uint32_t* taken_word(int owner, int peer) const { return word(owner, 2 * peer + 1); }
  uint32_t* ended_word(int owner) const { return word(owner, 2 * size_); }
  bool has_ended(int owner) const;  // this rank's own word changes under the mutex
  uint32_t* word(int owner, int number) const;
  // Returns the slot of a turn in the mailbox of `owner` for `peer`.
  std::byte* slot(int owner, int peer, uint32_t turn) const;
  // Increments the counter of posts to or receives from the peer. Fails after abort().
  Result<Count> next(int peer, bool leaves);

  CudaApi& cuda_;
  const int rank_;
  const int size_;
  const std::shared_ptr<GroupSharedMemory> memory_;
  const size_t begin_;  // offset of the mailboxes, behind the words
  const size_t most_;   // size of a slot
  int pinned_ = 0;      // number of ranks with pinned memory
  // Stream of the last use.
  Stream last_ = nullptr;
  std::map<Stream, std::shared_ptr<void>> uses_;  // Events of the last use on each stream
  std::map<Stream, SideStream> sides_;
  std::mutex mutex_;                                       // a leaf lock
  std::vector<Count> counts_ RINGDIST_GUARDED_BY(mutex_);  // by peer
};

// DeviceLink over mailboxes, for one op. Devices only copy. Messages are cut into turns of at most
// one slot.
class MailboxLink final : public DeviceLink {
 public:
  MailboxLink(HostMailboxes& mailboxes, Stream stream) : mailboxes_(mailboxes), stream_(stream) {}

  Error begin() override;
  Error send(int peer, const DeviceBytes& message, Stream stream) override;
  Error receive(int peer, const DeviceBytes& message, Stream stream) override;
  Error end() override;

 private:
  // All bytes to or from one peer in one exchange. The two ranks of a pair cut them at the same
  // places.
  class Row {
   public:
    void add(std::span<std::byte> piece) { pieces_.push_back(piece); }
    bool empty() const { return pieces_.empty(); }
    // Removes and returns the next pieces, of at most `most` bytes.
    HostMailboxes::Pieces cut(size_t most);

   private:
    HostMailboxes::Pieces pieces_;
  };
  using Rows = std::map<int, Row>;

  // Enqueues all turns: posts on the op's stream, receives on `takes`.
  Error move(Stream takes);

  HostMailboxes& mailboxes_;
  const Stream stream_;
  Rows sends_, receives_;
};

}  // namespace ringdist::gpu
