# Sets compiler and linker options of all targets.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
# -g1 gives backtraces with lines at a tenth of the size of -g.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1 -DNDEBUG")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(ringdist_flags INTERFACE)
# -iquote instead of -I keeps <torch/...> from finding files of csrc/torch/.
# -ffp-contract=off makes loops give the same bits with and without FMA instructions.
target_compile_options(ringdist_flags INTERFACE
  "SHELL:-iquote ${PROJECT_SOURCE_DIR}/csrc"
  -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual
  -ffp-contract=off
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # GCC 12 reports false overlaps and overflows inside std::string and std::vector<std::byte> (GCC bugs
  # 105651, 105329). AddressSanitizer finds the real ones.
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>
  $<$<BOOL:${RINGDIST_WERROR}>:-Werror>)

find_package(Threads REQUIRED)
target_link_libraries(ringdist_flags INTERFACE Threads::Threads ${CMAKE_DL_LIBS})

if(SANITIZE STREQUAL "address")
  # Four of UBSan's checks take half of the compiler's time, and AddressSanitizer finds most of the same
  # errors.
  set(sanitizers -fsanitize=address,undefined -fno-sanitize=null,pointer-overflow,object-size,vptr
    -fno-sanitize-recover=all)
elseif(SANITIZE STREQUAL "thread")
  # GCC warns that TSan does not model std::atomic_thread_fence. This must not fail the build, because
  # some code needs fences. Reports of TSan about such code are checked by hand.
  set(sanitizers -fsanitize=thread $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-error=tsan>)
elseif(SANITIZE STREQUAL "fuzz")
  # libFuzzer chooses inputs by its own counters. The others are for llvm-cov, which prints the lines that
  # the inputs reach.
  set(sanitizers -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
    -fprofile-instr-generate -fcoverage-mapping)
elseif(SANITIZE)
  message(FATAL_ERROR "SANITIZE is '${SANITIZE}'; have: address, thread, fuzz")
endif()
if(SANITIZE)
  # Reports always name functions. Line numbers take a fifth of the compiler's time.
  option(RINGDIST_LINES "Reports of sanitizers name lines" ON)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1")
  if(RINGDIST_LINES)
    string(APPEND CMAKE_CXX_FLAGS_RELEASE " -g1")
  endif()
  target_compile_options(ringdist_flags INTERFACE ${sanitizers} -fno-omit-frame-pointer)
  target_compile_definitions(ringdist_flags INTERFACE RINGDIST_SANITIZED=1)
  target_link_options(ringdist_flags INTERFACE ${sanitizers})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
