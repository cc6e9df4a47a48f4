# Precompiles headers of other projects, once per target. Together with the groups of files that are
# compiled as one (UNITY_BUILD in CMakeLists.txt) this saves half of the compiler's time.
#
# It is off with ccache, which would miss after each change of a precompiled header. Files with compile
# options of their own cannot use it (SKIP_PRECOMPILE_HEADERS). The lists have no headers of ours, so that
# a change of ours recompiles only files that include it.
#
# Missing includes are still found: tools/check_includes.py finds those of the headers below. The thread
# sanitizer's build, which does not group files, finds those of our headers.

set(precompile_by_default ON)
if(CCACHE)
  set(precompile_by_default OFF)
endif()
option(RINGDIST_PRECOMPILE "Parse the headers of others once per build" ${precompile_by_default})
set(unity ${RINGDIST_PRECOMPILE})
if(SANITIZE STREQUAL "thread")
  set(unity OFF)
endif()

set(std_headers <algorithm> <array> <atomic> <chrono> <cstddef> <cstdint> <cstring> <deque>
  <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view>
  <thread> <utility> <vector>)
set(torch_headers ${std_headers} <ATen/core/Tensor.h> <ATen/core/ivalue.h> <ATen/core/jit_type.h>
  <torch/csrc/distributed/c10d/Backend.hpp> <torch/csrc/distributed/c10d/PrefixStore.hpp>)
set(test_headers ${std_headers} <gtest/gtest.h>)

# ringdist_precompile(<target> <header>...) precompiles the headers for the target.
function(ringdist_precompile target)
  if(RINGDIST_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# ringdist_share_precompiled(<target> <owner>) reuses the headers of `owner`, which must have the same options.
function(ringdist_share_precompiled target owner)
  if(RINGDIST_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
