# libringdist_cuda.so, a library of its own (csrc/engine/devices.h): built where it is asked for, since
# nvcc may be there for other reasons. `make cuda` asks, and RINGDIST_CUDA=ON in the environment.
set(cuda_wanted OFF)
if(DEFINED ENV{RINGDIST_CUDA} AND NOT "$ENV{RINGDIST_CUDA}" STREQUAL "")
  set(cuda_wanted $ENV{RINGDIST_CUDA})
endif()
option(RINGDIST_CUDA "Build the kernels for NVIDIA GPUs; needs nvcc" ${cuda_wanted})
if(NOT RINGDIST_CUDA OR SANITIZE)
  return()
endif()

# nvcc is often not in PATH.
find_program(RINGDIST_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
if(NOT RINGDIST_NVCC)
  message(FATAL_ERROR "RINGDIST_CUDA=ON needs nvcc: not in PATH, CUDA_HOME or /usr/local/cuda")
endif()
set(CMAKE_CUDA_COMPILER ${RINGDIST_NVCC})
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
# Ampere, Hopper, Blackwell, and PTX of the last for what comes.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

file(GLOB cuda_files CONFIGURE_DEPENDS csrc/cuda/*.cc csrc/cuda/kernel/*.cc)
file(GLOB cuda_kernels CONFIGURE_DEPENDS csrc/cuda/kernel/*.cu)

# Bytes are those of the CPU's codecs: nothing is contracted, nothing flushed to zero (nvcc's
# default), and constexpr functions of kernel/ run on the device.
add_library(ringdist_cuda_kernels OBJECT ${cuda_kernels})
target_include_directories(ringdist_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR}/csrc)
target_compile_options(ringdist_cuda_kernels PRIVATE
  -fmad=false --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra
  $<$<BOOL:${RINGDIST_WERROR}>:-Werror=all-warnings>)

add_library(ringdist_cuda MODULE EXCLUDE_FROM_ALL ${cuda_files})
target_compile_definitions(ringdist_cuda PRIVATE RINGDIST_CUDA_ARCHITECTURES="80, 90, 100")
target_link_libraries(ringdist_cuda PRIVATE ringdist_cuda_kernels ringdist_base CUDA::cudart_static)
target_link_options(ringdist_cuda PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
set_target_properties(ringdist_cuda PROPERTIES LINKER_LANGUAGE CXX SKIP_BUILD_RPATH ON)
install(TARGETS ringdist_cuda LIBRARY DESTINATION . COMPONENT cuda OPTIONAL)
