# Builds libringdist_cuda.so, which core loads at run time (csrc/engine/device/devices.h). It is built on
# request only, because nvcc may be installed for other reasons. `make cuda` and RINGDIST_CUDA=ON in the
# environment request it. Later builds of the same folder also have it, until RINGDIST_CUDA=OFF.
set(RINGDIST_CUDA OFF CACHE BOOL "Build the kernels for NVIDIA GPUs; needs nvcc")
if(DEFINED ENV{RINGDIST_CUDA} AND NOT "$ENV{RINGDIST_CUDA}" STREQUAL "")
  set(RINGDIST_CUDA $ENV{RINGDIST_CUDA} CACHE BOOL "" FORCE)
endif()
if(NOT RINGDIST_CUDA OR SANITIZE)
  return()
endif()

include(cmake/cuda_kernels.cmake)

file(GLOB cuda_files CONFIGURE_DEPENDS csrc/cuda/*.cc csrc/cuda/*/*.cc)
list(JOIN cuda_architectures ", " architectures)
add_library(ringdist_cuda MODULE ${cuda_files})
target_compile_definitions(ringdist_cuda PRIVATE RINGDIST_CUDA_ARCHITECTURES="${architectures}")
target_link_libraries(ringdist_cuda PRIVATE ringdist_cuda_kernels ringdist_core CUDA::cudart_static)
set(exports ${PROJECT_SOURCE_DIR}/cmake/cuda_exports.map)
target_link_options(ringdist_cuda PRIVATE
  LINKER:--exclude-libs,ALL LINKER:--no-undefined LINKER:--version-script=${exports})
set_target_properties(ringdist_cuda PROPERTIES LINK_DEPENDS ${exports})
set_target_properties(ringdist_cuda PROPERTIES LINKER_LANGUAGE CXX SKIP_BUILD_RPATH ON)

# Compiles the program that `python -m benchmarks.gpu_check` builds itself on machines with a GPU, to find
# errors elsewhere.
add_library(gpu_check_program OBJECT EXCLUDE_FROM_ALL benchmarks/gpu_check/main.cc)
target_compile_options(gpu_check_program PRIVATE "SHELL:-iquote ${PROJECT_SOURCE_DIR}/tests/cpp")
target_link_libraries(gpu_check_program PRIVATE ringdist_core CUDA::cudart_static)
