# Targets that a sanitizer or an analysis builds: the suites with its label, or everything but tests.
add_custom_target(sherd_asan_tests)
add_custom_target(sherd_tsan_tests)
add_custom_target(sherd_libraries)

# sherd_library(NAME SOURCES a.cc … [DEPS x y …]): a static library of one folder.
function(sherd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC sherd_options ${ARG_DEPS})
  add_dependencies(sherd_libraries ${name})
endfunction()

# sherd_binary(NAME SOURCES … DEPS …): an executable in <build>/bin.
function(sherd_binary name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sherd_options ${ARG_DEPS})
  add_dependencies(sherd_libraries ${name})
endfunction()

# sherd_test(NAME SOURCES … DEPS … [LABELS l …] [TIMEOUT seconds]): one GoogleTest binary, one
# ctest entry. A label names the suites and sanitizers a test belongs to (see tests/README.md).
function(sherd_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE sherd_options ${ARG_DEPS} sherd_test_support GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
  foreach(sanitizer asan tsan)
    if(sanitizer IN_LIST ARG_LABELS)
      add_dependencies(sherd_${sanitizer}_tests ${name})
    endif()
  endforeach()
endfunction()
