// What two ends of a link say of shared tensors, over its connection: the sender lends a block, and
// passes its file; the reader maps it, or has no room; the sender takes back what was freed. A loan
// is named in messages only once it is taken.
#pragma once

#include <cstdint>
#include <optional>

#include "base/error.h"
#include "os/fd.h"

namespace ringdist::shm {

enum class ExportMessageType : uint32_t {
  kExport = 1,  // with the block's file
  kTaken,
  kRefused,
  kDetach,  // the reader unmaps it; no message in the ring names it
};

// Little-endian.
struct ExportMessage {
  uint64_t magic = kMagic;
  ExportMessageType word;
  uint32_t loan;
  uint64_t bytes = 0;  // of a block that is lent

  static constexpr uint64_t kMagic = 0x6e616f6c2d6d6873ull;
};

// False if it cannot be sent now.
bool send_export_message(const Fd& socket, const ExportMessage& note, const Fd* file = nullptr);

struct ReceivedExportMessage {
  ExportMessage note;
  Fd file;  // none where this process had no descriptor left for it
};
// Nothing if none is there. Errors: kPeerLost where the connection has ended; kProtocol for other
// bytes.
Result<std::optional<ReceivedExportMessage>> receive_export_message(const Fd& socket);

}  // namespace ringdist::shm
