// Features of the PyTorch that this is compiled against. Only this file compares its version.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#define RINGDIST_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||           \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

// 2.14: failure hooks of a backend.
#ifdef C10D_BACKEND_HAS_HOOKS
#define RINGDIST_TORCH_HAS_ABORT_HOOKS 1
#else
#define RINGDIST_TORCH_HAS_ABORT_HOOKS 0
#endif

// 2.14: groups with members that change.
#ifdef C10D_BACKEND_HAS_RECONFIGURE
#define RINGDIST_TORCH_HAS_RECONFIGURE 1
#else
#define RINGDIST_TORCH_HAS_RECONFIGURE 0
#endif

// 2.14: gather into one tensor.
#define RINGDIST_TORCH_HAS_GATHER_INTO_TENSOR RINGDIST_TORCH_AT_LEAST(2, 14)

// 2.15: hooks for each operation that succeeds, and functions that report support of hooks.
#define RINGDIST_TORCH_HAS_COMPLETION_HOOKS RINGDIST_TORCH_AT_LEAST(2, 15)
