# Every library comes from the system's packages. A missing one is an error that names its package.

function(tessera_need found package what)
  if(NOT ${found})
    message(FATAL_ERROR "${what} not found: install the Debian package ${package} (apt-get install ${package})")
  endif()
endfunction()

find_package(CLI11 QUIET)
tessera_need(CLI11_FOUND libcli11-dev "CLI11")
find_package(yaml-cpp QUIET)
tessera_need(yaml-cpp_FOUND libyaml-cpp-dev "yaml-cpp")
find_package(nlohmann_json QUIET)
tessera_need(nlohmann_json_FOUND nlohmann-json3-dev "nlohmann_json")
find_package(fmt QUIET)
tessera_need(fmt_FOUND libfmt-dev "fmt")
find_package(doctest QUIET)
tessera_need(doctest_FOUND doctest-dev "doctest")
find_package(OpenSSL QUIET COMPONENTS Crypto)
tessera_need(OPENSSL_FOUND libssl-dev "OpenSSL libcrypto")
find_package(Threads REQUIRED)

# What the trainer uses is linked statically and by full path, so that one file starts on any node.
# OpenBLAS in its OpenMP build: the pthread build keeps threads of its own, which fight with ours.
find_file(TESSERA_OPENBLAS_STATIC NAMES libopenblas.a
  PATHS /usr/lib/x86_64-linux-gnu/openblas-openmp NO_DEFAULT_PATH)
tessera_need(TESSERA_OPENBLAS_STATIC libopenblas-openmp-dev "OpenBLAS (OpenMP build, static)")
find_path(TESSERA_OPENBLAS_INCLUDE NAMES cblas.h PATHS /usr/include/x86_64-linux-gnu/openblas-openmp NO_DEFAULT_PATH)
tessera_need(TESSERA_OPENBLAS_INCLUDE libopenblas-openmp-dev "cblas.h of OpenBLAS's OpenMP build")
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libgomp.a
  OUTPUT_VARIABLE TESSERA_GOMP_STATIC OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT IS_ABSOLUTE "${TESSERA_GOMP_STATIC}")
  message(FATAL_ERROR "libgomp.a not found: install the Debian package g++ (its libgcc-dev holds it)")
endif()

add_library(tessera_openblas INTERFACE)
target_include_directories(tessera_openblas SYSTEM INTERFACE ${TESSERA_OPENBLAS_INCLUDE})
target_link_libraries(tessera_openblas INTERFACE ${TESSERA_OPENBLAS_STATIC} ${TESSERA_GOMP_STATIC} Threads::Threads m ${CMAKE_DL_LIBS})

# Ranks of CPUs talk through Gloo; without it a trainer runs on one rank.
find_library(TESSERA_GLOO NAMES gloo)
find_path(TESSERA_GLOO_INCLUDE NAMES gloo/transport/tcp/device.h)
if(NOT TESSERA_GLOO OR NOT TESSERA_GLOO_INCLUDE)
  message(STATUS "Gloo not found: the trainer will run on one rank; for more install the Debian package libgloo-dev")
  set(TESSERA_GLOO "")
endif()

find_program(TESSERA_CCACHE ccache)
if(TESSERA_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${TESSERA_CCACHE})
endif()
