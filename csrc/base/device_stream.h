// Where the memory of an op lies that is not the host's.
#pragma once

namespace ringdist {

// A device, and the stream that the op's caller uses.
struct DeviceStream {
  int device = 0;
  void* stream = nullptr;  // cudaStream_t: the op comes after what it holds
};

}  // namespace ringdist
