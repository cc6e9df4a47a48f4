# Defines the target ringdist_ucp, and UCX_SOURCE, UCX_BUILD_VERSION and UCX_LIBRARY_DIR.
#
# By default UCX is the libucx wheel of the Python that runs the build. RINGDIST_UCX=system selects the UCX
# that is installed on the machine. The choice is fixed at build time, because a process must never load
# two.

if(NOT RINGDIST_UCX MATCHES "^(wheel|system)$")
  message(FATAL_ERROR "RINGDIST_UCX is '${RINGDIST_UCX}'; have: wheel, system")
endif()

add_library(ringdist_ucp INTERFACE)
if(RINGDIST_UCX STREQUAL "wheel")
  # Set by setup.py if it downloaded the wheel's files for this build.
  if(RINGDIST_UCX_WHEEL)
    set(RINGDIST_PROBED_WHEEL_DIR ${RINGDIST_UCX_WHEEL})
    set(RINGDIST_PROBED_WHEEL_NAME libucx-cu13)
  endif()
  if(NOT RINGDIST_PROBED_WHEEL_DIR)
    message(FATAL_ERROR "no UCX: ${Python_EXECUTABLE} has no libucx wheel.\n"
      "  ${Python_EXECUTABLE} -m pip install libucx-cu13     (or libucx-cu12)\n"
      "or take the system's UCX with RINGDIST_UCX=system.")
  endif()
  # A cached result would outlive a change of the wheel or of RINGDIST_UCX.
  unset(ucx_DIR CACHE)
  find_package(ucx CONFIG REQUIRED NO_DEFAULT_PATH PATHS ${RINGDIST_PROBED_WHEEL_DIR})
  target_link_libraries(ringdist_ucp INTERFACE ucx::ucp ucx::ucs)
  set(UCX_LIBRARY_DIR ${RINGDIST_PROBED_WHEEL_DIR}/lib)
  set(UCX_BUILD_VERSION ${ucx_VERSION})
  set(UCX_SOURCE "wheel ${RINGDIST_PROBED_WHEEL_NAME} ${ucx_VERSION}")
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${RINGDIST_PROBED_WHEEL_DIR}/UCX_WHEEL_VERSION.txt)
else()
  unset(ucx_DIR CACHE)
  find_package(ucx CONFIG QUIET)
  if(ucx_FOUND)
    target_link_libraries(ringdist_ucp INTERFACE ucx::ucp ucx::ucs)
    get_target_property(location ucx::ucp IMPORTED_LOCATION)
    get_filename_component(UCX_LIBRARY_DIR "${location}" DIRECTORY)
    set(UCX_BUILD_VERSION ${ucx_VERSION})
  else()
    find_package(PkgConfig QUIET)
    if(PKG_CONFIG_FOUND)
      pkg_check_modules(UCX QUIET IMPORTED_TARGET ucx)
    endif()
    if(NOT UCX_FOUND)
      message(FATAL_ERROR "RINGDIST_UCX=system, but neither find_package(ucx) nor pkg-config knows "
        "UCX. Install its development files (Debian, Ubuntu: apt-get install libucx-dev), or name "
        "its prefix in CMAKE_PREFIX_PATH.")
    endif()
    target_link_libraries(ringdist_ucp INTERFACE PkgConfig::UCX)
    set(UCX_LIBRARY_DIR ${UCX_LIBDIR})
    set(UCX_BUILD_VERSION ${UCX_VERSION})
  endif()
  set(UCX_SOURCE "system")
endif()
message(STATUS "UCX: ${UCX_BUILD_VERSION} (${UCX_SOURCE}), ${UCX_LIBRARY_DIR}")
