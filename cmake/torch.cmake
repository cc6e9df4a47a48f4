# Defines targets for torch's headers and libraries: ringdist_libtorch_cpu, and ringdist_libtorch, which
# also has the parts that need Python.
#
# find_package(Torch) is not used. In a CUDA build of torch it looks for the CUDA toolkit, which this
# library does not need.

set(torch_dir ${RINGDIST_PROBED_TORCH_DIR})
if(NOT torch_dir)
  message(FATAL_ERROR "no torch: ${Python_EXECUTABLE} does not know it. Install torch >= 2.11 into "
    "that environment first, and build with 'pip install --no-build-isolation .'.")
endif()
set(TORCH_VERSION ${RINGDIST_PROBED_TORCH_VERSION})
if(TORCH_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${TORCH_VERSION} in ${torch_dir} is too old: 2.11 or newer is needed.")
endif()
string(REGEX MATCH "^([0-9]+)\\.([0-9]+)" ignored ${TORCH_VERSION})
set(TORCH_MAJOR ${CMAKE_MATCH_1})
set(TORCH_MINOR ${CMAKE_MATCH_2})
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${torch_dir}/version.py)

add_library(ringdist_libtorch_cpu INTERFACE)
target_include_directories(ringdist_libtorch_cpu SYSTEM INTERFACE
  ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
target_link_libraries(ringdist_libtorch_cpu INTERFACE
  ${torch_dir}/lib/libtorch.so ${torch_dir}/lib/libtorch_cpu.so ${torch_dir}/lib/libc10.so)
add_library(ringdist_libtorch INTERFACE)
target_link_libraries(ringdist_libtorch INTERFACE
  ${torch_dir}/lib/libtorch_python.so ringdist_libtorch_cpu)
message(STATUS "torch: ${TORCH_VERSION}, ${torch_dir}")
