// Descriptors, and a few bytes that say what they are, from one process to another over an AF_UNIX
// stream (unix(7), SCM_RIGHTS). Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "os/fd.h"

namespace ringdist {

inline constexpr size_t kMaxPassedFds = 8;

// All of it or an Error (kSystem): a note of this kind is the first thing on its connection and is
// far smaller than a socket's buffer. `later`: the kernel lacks something for the moment, so the
// same call may succeed after a pause. All processes of a user may have RLIMIT_NOFILE descriptors
// in flight together.
Error send_with_fds(const Fd& socket, ConstBytes note, std::span<const int> fds,
                    bool* later = nullptr);

struct ReceivedFds {
  size_t bytes = 0;  // 0: the other side has closed
  std::vector<Fd> fds;
};
// At most note.size() bytes and what came along with them; nothing there: no bytes and `empty`.
// Errors: kPeerLost where the connection is broken; kSystem where this process can hold no more
// descriptors.
Result<ReceivedFds> receive_with_fds(const Fd& socket, Bytes note, bool& empty);

}  // namespace ringdist
