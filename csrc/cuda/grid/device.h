// What a kernel's body needs so that one text serves two compilers: nvcc, for the device, and any
// other, for tests on the host.
#pragma once

#ifdef __CUDACC__
#define RINGDIST_DEVICE __device__ __forceinline__
#else
#define RINGDIST_DEVICE inline
#endif
