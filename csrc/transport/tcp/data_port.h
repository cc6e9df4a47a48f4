// The listening port of a process, as transport `tcp` sees it. The control plane accepts all
// connections and reads their first frame. If that is a DataHello, the connection carries messages
// of a transport.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "os/fd.h"
#include "transport/transport.h"

namespace ringdist {

// Random number that a transport publishes with its address. A connection must name it, so that
// only processes that have read the address from the store are let in.
using DataSecret = std::array<std::byte, 16>;

// First frame of a connection for data. The side that dials sends it, and waits for an answer.
struct DataHello {
  static constexpr uint8_t kFrameType = 0x07;  // FrameType::kDataHello of the control plane

  ContextId from = 0;
  ContextId to = 0;
  uint32_t channel = 0;  // number of the sender's channel to that peer; a renewed one has a higher
  DataSecret secret{};   // the receiver's

  // Returns the whole frame: u32 length of the body, u8 type, body.
  std::vector<std::byte> frame() const;
  // Reads the body of a frame. Returns nothing if it is malformed or of another version.
  static std::optional<DataHello> decode(ConstBytes body);
};

// Passes accepted connections to the transports of this process. Any thread.
class DataPort {
 public:
  // Takes over a connection. Called on the thread of adopt(), under the lock of the port, so it
  // must not call the port.
  using Take = std::function<void(Fd socket, const DataHello& hello)>;

  // Registers a transport under its secret, until remove(). After remove() `take` is not called.
  void add(const DataSecret& secret, Take take);
  void remove(const DataSecret& secret);
  // Passes a connection to the transport that it names; `hello` is the body of its first frame.
  // Closes the connection if there is no such transport or the frame is malformed.
  void adopt(Fd socket, ConstBytes hello);

 private:
  std::mutex mutex_;
  std::vector<std::pair<DataSecret, Take>> transports_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
