# What many files include is parsed once per build, or once per group of files (UNITY_BUILD in
# CMakeLists.txt), not once per file: half of the compiler's time.
#
# Without it under ccache, which would miss at every change of a header in it. Files that are compiled
# with options of their own cannot share it: SKIP_PRECOMPILE_HEADERS. The lists name headers of others
# only, so a change of ours recompiles what it must. The file that forgot an #include is found all the
# same: one of a header below by tools/check_includes.py, one of ours by the thread sanitizer's build,
# which has no groups.

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

# ringdist_precompile(<target> <header>...): the target parses them once.
function(ringdist_precompile target)
  if(RINGDIST_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# ringdist_share_precompiled(<target> <owner>): the target takes those of a target with its options.
function(ringdist_share_precompiled target owner)
  if(RINGDIST_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()
