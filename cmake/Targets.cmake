# tessera_library(NAME SOURCES ... LINK ...), tessera_program(...), tessera_test(...): one set of flags for all.

set(TESSERA_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast
    -Wcast-qual -Wimplicit-fallthrough -Wduplicated-cond -Wlogical-op -Wredundant-decls -Wsuggest-override
    -Wzero-as-null-pointer-constant
    -Wno-missing-field-initializers)  # members left out of a designated initialiser keep their default
if(TESSERA_WERROR)
  list(APPEND TESSERA_WARNINGS -Werror)
endif()

function(tessera_flags target)
  # nvcc's output does not keep to -Wpedantic.
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${TESSERA_WARNINGS}>")
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
  if(TESSERA_CARRY)
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-ffunction-sections;-fdata-sections>")
  endif()
  # Older than every node that trains: vector kernels are chosen at run time.
  target_compile_options(${target} PRIVATE -march=x86-64-v2)
  if(TESSERA_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${TESSERA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
    target_link_options(${target} PRIVATE -fsanitize=${TESSERA_SANITIZE})
  endif()
endfunction()

function(tessera_library target)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(${target} STATIC ${ARG_SOURCES})
  tessera_flags(${target})
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

# A test is one program a folder, named as the folder, run in the source tree so that it finds tests/data and yamls.
# THREADS: how many it computes with; ctest does not start more at a time than its presets say.
function(tessera_test target)
  cmake_parse_arguments(ARG "" "TIMEOUT;THREADS" "SOURCES;LINK" ${ARGN})
  add_executable(${target} ${ARG_SOURCES})
  tessera_flags(${target})
  target_link_libraries(${target} PRIVATE tessera_doctest_main ${ARG_LINK})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${target} COMMAND ${target} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)
  endif()
  if(NOT ARG_THREADS)
    set(ARG_THREADS 1)
  endif()
  set_tests_properties(${target} PROPERTIES TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_THREADS}
    ENVIRONMENT "TESSERA_BIN=${CMAKE_BINARY_DIR}/bin;TESSERA_TEST_TMP=${CMAKE_BINARY_DIR}/tests/tmp;LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/leaks.supp:print_suppressions=0")
endfunction()
