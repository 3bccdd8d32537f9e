# SPDX-License-Identifier: Apache-2.0
# tessera_library(NAME SOURCES ... LINK ...), tessera_program(...), tessera_test(...), tessera_suite(...): one set of
# flags for all.

set(TESSERA_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
    -Wcast-qual -Wimplicit-fallthrough -Wduplicated-cond -Wlogical-op -Wredundant-decls -Wsuggest-override
    -Wzero-as-null-pointer-constant
    -Wno-missing-field-initializers)  # members left out of a designated initialiser keep their default
if(TESSERA_WERROR)
  list(APPEND TESSERA_WARNINGS -Werror)
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(TESSERA_WARNINGS -w)  # clang-tidy gives clang's
endif()

function(tessera_flags target)
  # nvcc's output does not keep to -Wpedantic.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TESSERA_WARNINGS}>")
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  if(TESSERA_CARRY)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>")
  endif()
  # Older than every node that trains: vector kernels are chosen at run time. Paths in programs begin at the source
  # tree: two clones build the same bytes, and a cache of one serves the other.
  target_compile_options(${target} PRIVATE -march=x86-64-v2
    "$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
  if(TESSERA_SANITIZE)
    # Kernels for GPUs are those of the release build: ccache has them.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TESSERA_SANITIZE};-fno-omit-frame-pointer;-fno-sanitize-recover=all>")
    target_link_options(${target} PRIVATE -fsanitize=${TESSERA_SANITIZE})
    # As gcc says that it is there. (The thread sanitizer is gcc's: clang's takes no other operator new.)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      # A stack on the heap for each of the emulator's threads would take most of the tests' time.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize-address-use-after-return=never>)
      # Libraries that are opened at run time declare their types themselves.
      target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=function>)
      target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:__SANITIZE_ADDRESS__=1>)
    endif()
  endif()
endfunction()

# Compiles a target's sources in batches, each as if it were one file, if TESSERA_UNITY names their kind: headers are
# read once a batch, which halves the time of a build from nothing.
function(tessera_unity target kind)
  if(TESSERA_SANITIZE AND kind STREQUAL "TESTS")
    target_compile_options(${target} PRIVATE -O0)  # they are built in half the time, and call what is optimised
  endif()
  if(TESSERA_UNITY STREQUAL "ALL" OR TESSERA_UNITY STREQUAL kind)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TESSERA_UNITY_BATCH})
    # gcc takes a source in a batch for a header, whose types must not hold any of an unnamed namespace.
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>")
  endif()
endfunction()

function(tessera_library target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${target} STATIC ${ARG_SOURCES})
  tessera_flags(${target})
  tessera_unity(${target} PRODUCT)
  target_link_libraries(${target} PUBLIC ${ARG_LINK})
endfunction()

function(tessera_program target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${target} ${ARG_SOURCES})
  tessera_flags(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LINK})
  if(TESSERA_CARRY)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -s -Wl,--gc-sections)
  endif()
endfunction()

# Programs and tests that CI builds in the release build: the others are built there for people alone.
add_custom_target(release_for_ci)

# tessera_add_test(NAME PROGRAM [CI builds] [THREADS n] [TIMEOUT s] [ARGUMENTS ...]): run in the source tree, so that it
# finds tests/data and yamls. CI: the builds in which `test.sh --all` runs it: sanitizers (alone, as long as nothing is
# said), release (what runs real programs, or brings a sanitizer of its own), both (what -O2 may change). THREADS: how
# many it computes with; ctest does not start more at a time than its presets say.
function(tessera_add_test name program)
  cmake_parse_arguments(ARG "" "CI;TIMEOUT;THREADS" "ARGUMENTS" ${ARGN})
  if(NOT ARG_CI)
    set(ARG_CI sanitizers)
  endif()
  if(NOT ARG_CI MATCHES "^(sanitizers|release|both)$")
    message(FATAL_ERROR "test ${name}: CI ${ARG_CI}: sanitizers, release or both")
  endif()
  add_test(NAME ${name} COMMAND ${program} ${ARG_ARGUMENTS} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)
  endif()
  if(NOT ARG_THREADS)
    set(ARG_THREADS 1)
  endif()
  # Several tests run at a time: threads that wait by spinning would take the CPUs from the others.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_THREADS} LABELS "ci-${ARG_CI}"
    ENVIRONMENT "OMP_WAIT_POLICY=passive;TESSERA_BIN=${CMAKE_BINARY_DIR}/bin;TESSERA_TEST_BIN=${CMAKE_BINARY_DIR}/tests;LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leaks.supp:print_suppressions=0")
  add_custom_target(suite_${name})
  if(TARGET ${program})
    add_dependencies(suite_${name} ${program})
  else()
    add_dependencies(suite_${name} submit collect trainer)
  endif()
  if(NOT ARG_CI STREQUAL "sanitizers")
    add_dependencies(release_for_ci suite_${name})
  endif()
endfunction()

# tessera_test_program(NAME): a program of tests, to which its own sources or suites are added.
function(tessera_test_program target)
  add_executable(${target} $<TARGET_OBJECTS:tessera_doctest_main>)
  tessera_flags(${target})
  tessera_unity(${target} TESTS)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

# tessera_test(NAME SOURCES ... LINK ... [CI builds] [THREADS n] [TIMEOUT s]): the program test_NAME, and the test NAME that
# runs it.
function(tessera_test name)
  cmake_parse_arguments(ARG "" "CI;TIMEOUT;THREADS" "SOURCES;LINK" ${ARGN})
  tessera_test_program(test_${name})
  target_sources(test_${name} PRIVATE ${ARG_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${ARG_LINK})
  tessera_add_test(${name} test_${name} CI ${ARG_CI} TIMEOUT ${ARG_TIMEOUT} THREADS ${ARG_THREADS})
endfunction()

# tessera_suite(NAME PROGRAM SOURCES ... LINK ... [THREADS n]): the sources of this folder in a program of many
# suites, and the test NAME that runs them alone.
function(tessera_suite name program)
  cmake_parse_arguments(ARG "" "THREADS" "SOURCES;LINK" ${ARGN})
  set(target tests_${name})
  add_library(${target} OBJECT ${ARG_SOURCES})
  tessera_flags(${target})
  tessera_unity(${target} TESTS)
  target_link_libraries(${target} PUBLIC ${ARG_LINK})
  target_link_libraries(${program} PRIVATE ${target})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  tessera_add_test(${name} ${program} THREADS ${ARG_THREADS} ARGUMENTS "--source-file=${folder}/*")
endfunction()
