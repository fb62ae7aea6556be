# Language level, warnings and sanitizers for every target of the project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

option(SHERD_BUILD_TESTS "Build the test suites" ON)
option(SHERD_BUILD_BENCH "Build the benchmarks" OFF)
set(SHERD_SANITIZE "" CACHE STRING "Sanitizers for every target: empty, 'address,undefined' or 'thread'")

option(SHERD_FUZZ "Build the targets of tests/fuzz for clang's fuzzer" OFF)

find_program(SHERD_CCACHE ccache)
if(SHERD_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SHERD_CCACHE})
endif()

add_library(sherd_options INTERFACE)
target_include_directories(sherd_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(sherd_options INTERFACE
  -Wall -Wextra -Werror -Wno-unused-parameter -Wnon-virtual-dtor -Woverloaded-virtual
  # Floating-point contraction and reassociation would make bits depend on the optimiser.
  -ffp-contract=off -fno-fast-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(sherd_options INTERFACE -Wthread-safety)
endif()
target_compile_definitions(sherd_options INTERFACE SHERD_VERSION="${PROJECT_VERSION}")

if(SHERD_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(SHERD_SANITIZE)
  add_compile_options(-fsanitize=${SHERD_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${SHERD_SANITIZE})
  if(SHERD_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC 12 with a sanitizer warns falsely about std::variant and absl::StatusOr.
    add_compile_options(-Wno-maybe-uninitialized)
  endif()
endif()
