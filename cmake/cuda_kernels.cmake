# Builds ringdist_cuda_kernels from csrc/cuda/kernel with nvcc, for Ampere, Hopper and Blackwell. PTX of
# the last one serves later architectures. RINGDIST_CUDA_ARCHITECTURES="86" builds for one GPU, in a
# third of the time.
set(cuda_architectures 80 90 100)
if(NOT "$ENV{RINGDIST_CUDA_ARCHITECTURES}" STREQUAL "")
  separate_arguments(cuda_architectures UNIX_COMMAND "$ENV{RINGDIST_CUDA_ARCHITECTURES}")
endif()
list(TRANSFORM cuda_architectures APPEND -real OUTPUT_VARIABLE CMAKE_CUDA_ARCHITECTURES)
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE -real "" AT -1)
set(least_nvcc 12.8)  # the first version with the last of them

# Stops the build and disables CUDA, so the next build succeeds without it.
macro(ringdist_no_cuda why)
  set(RINGDIST_CUDA OFF CACHE BOOL "" FORCE)
  message(FATAL_ERROR "RINGDIST_CUDA=ON: ${why}")
endmacro()

if(RINGDIST_NVCC AND NOT EXISTS "${RINGDIST_NVCC}")
  unset(RINGDIST_NVCC CACHE)  # it existed when this folder was configured
endif()
# The named folders precede PATH, which often lacks nvcc.
find_program(RINGDIST_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT RINGDIST_NVCC)
  ringdist_no_cuda("nvcc is not in CUDA_HOME, PATH or /usr/local/cuda")
endif()
set(CMAKE_CUDA_COMPILER ${RINGDIST_NVCC})
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS least_nvcc)
  ringdist_no_cuda("${RINGDIST_NVCC} is ${CMAKE_CUDA_COMPILER_VERSION}; ${least_nvcc} is needed")
endif()
find_package(CUDAToolkit REQUIRED)

# Results must equal those of the CPU's codecs, bit for bit. So nothing is contracted, rounded in another
# way, or flushed to zero. constexpr functions of kernel/ run on the device. The standard is given as an
# option, because older versions of CMake do not support it for newer compilers.
file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/csrc/cuda/kernel/*.cu)
add_library(ringdist_cuda_kernels OBJECT ${cuda_kernels})
set_target_properties(ringdist_cuda_kernels PROPERTIES CUDA_VISIBILITY_PRESET hidden)
target_include_directories(ringdist_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR}/csrc)
target_compile_options(ringdist_cuda_kernels PRIVATE
  -std=c++20 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
  -Xcompiler=-Wall,-Wextra $<$<BOOL:${RINGDIST_WERROR}>:-Werror=all-warnings>)
