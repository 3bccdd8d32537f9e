# SPDX-License-Identifier: Apache-2.0
# Every library comes from the system's packages. A missing one is an error that names its package.

function(tessera_need found package what)
  if(NOT ${found})
    message(FATAL_ERROR "${what} not found: install the Debian package ${package} (apt-get install ${package})")
  endif()
endfunction()

find_package(CLI11 QUIET)
tessera_need(CLI11_FOUND libcli11-dev "CLI11")
set(usual_suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
if(TESSERA_CARRY)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  find_library(TESSERA_YAML_STATIC NAMES yaml-cpp)
  tessera_need(TESSERA_YAML_STATIC libyaml-cpp-dev "libyaml-cpp.a")
  add_library(yaml-cpp INTERFACE)
  target_link_libraries(yaml-cpp INTERFACE ${TESSERA_YAML_STATIC})
else()
  find_package(yaml-cpp QUIET)
  tessera_need(yaml-cpp_FOUND libyaml-cpp-dev "yaml-cpp")
endif()
find_package(nlohmann_json QUIET)
tessera_need(nlohmann_json_FOUND nlohmann-json3-dev "nlohmann_json")
find_package(fmt QUIET)
tessera_need(fmt_FOUND libfmt-dev "fmt")
find_package(doctest QUIET)
tessera_need(doctest_FOUND doctest-dev "doctest")
# SHA-256 and SipHash. Linked statically it is small, which OpenSSL with its providers is not.
find_library(TESSERA_SODIUM_STATIC NAMES libsodium.a)
find_path(TESSERA_SODIUM_INCLUDE NAMES sodium/crypto_hash_sha256.h)
tessera_need(TESSERA_SODIUM_STATIC libsodium-dev "libsodium.a")
tessera_need(TESSERA_SODIUM_INCLUDE libsodium-dev "sodium/crypto_hash_sha256.h")
add_library(tessera_sodium INTERFACE)
target_include_directories(tessera_sodium SYSTEM INTERFACE ${TESSERA_SODIUM_INCLUDE})
target_link_libraries(tessera_sodium INTERFACE ${TESSERA_SODIUM_STATIC})
set(CMAKE_FIND_LIBRARY_SUFFIXES ${usual_suffixes})
find_package(Threads REQUIRED)

# What the trainer uses is linked statically and by full path, so that one file starts on any node.
# OpenBLAS in its OpenMP build: the pthread build keeps threads of its own, which fight with ours.
find_file(TESSERA_OPENBLAS_STATIC NAMES libopenblas.a
  PATHS /usr/lib/x86_64-linux-gnu/openblas-openmp NO_DEFAULT_PATH)
tessera_need(TESSERA_OPENBLAS_STATIC libopenblas-openmp-dev "OpenBLAS (OpenMP build, static)")
find_path(TESSERA_OPENBLAS_INCLUDE NAMES cblas.h PATHS /usr/include/x86_64-linux-gnu/openblas-openmp NO_DEFAULT_PATH)
tessera_need(TESSERA_OPENBLAS_INCLUDE libopenblas-openmp-dev "cblas.h of OpenBLAS's OpenMP build")
# One OpenMP for OpenBLAS and us. That of clang, with which the sanitizers build, takes gcc's calls too.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set(TESSERA_OPENMP OpenMP::OpenMP_CXX)
else()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.a
    OUTPUT_VARIABLE TESSERA_OPENMP OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${TESSERA_OPENMP}")
    message(FATAL_ERROR "libgomp.a not found: install the Debian package g++ (its libgcc-dev holds it)")
  endif()
endif()

add_library(tessera_openblas INTERFACE)
target_include_directories(tessera_openblas SYSTEM INTERFACE ${TESSERA_OPENBLAS_INCLUDE})
target_link_libraries(tessera_openblas INTERFACE ${TESSERA_OPENBLAS_STATIC} ${TESSERA_OPENMP} Threads::Threads m ${CMAKE_DL_LIBS})

# Ranks of CPUs talk through Gloo, of which there is a shared library only; without it a trainer runs on one rank.
if(TESSERA_CARRY)
  set(TESSERA_GLOO "")
  set(TESSERA_GLOO_INCLUDE "")
else()
  find_library(TESSERA_GLOO NAMES gloo)
  find_path(TESSERA_GLOO_INCLUDE NAMES gloo/transport/tcp/device.h)
endif()
if(NOT TESSERA_GLOO OR NOT TESSERA_GLOO_INCLUDE)
  message(STATUS "Gloo not found: the trainer will run on one rank; for more install the Debian package libgloo-dev")
  set(TESSERA_GLOO "")
endif()

# Decided once for a build folder: a ccache that is installed later would build all anew. Paths in the cache are relative
# to the source tree, so that another clone finds what this one has built.
if(NOT DEFINED TESSERA_CCACHE)
  find_program(ccache NAMES ccache NO_CACHE)
  if(ccache)
    set(TESSERA_CCACHE "env;CCACHE_BASEDIR=${PROJECT_SOURCE_DIR};CCACHE_NOHASHDIR=1;${ccache}"
      CACHE STRING "Launcher of the compiler that keeps what it made, or empty")
  else()
    set(TESSERA_CCACHE "" CACHE STRING "Launcher of the compiler that keeps what it made, or empty")
  endif()
endif()
if(TESSERA_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
