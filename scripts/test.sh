#!/usr/bin/env bash
# The whole test suite: static checks, the release build with every test, and the sanitizer builds with the suites
# that pay under them. Budgets on two cores are stated in tests/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh --checks
stage() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

stage "layers"
python3 scripts/check_layers.py
stage "wire"
scripts/check_wire.sh

stage "sanitizers: address and undefined behaviour"
cmake --preset asan >/dev/null
cmake --build --preset asan --target sherd_asan_tests
ctest --test-dir build/asan -L asan --output-on-failure --no-tests=error

stage "sanitizers: thread"
cmake --preset tsan >/dev/null
cmake --build --preset tsan --target sherd_tsan_tests
ctest --test-dir build/tsan -L tsan --output-on-failure --no-tests=error

stage "thread-safety analysis"
cmake --preset clang >/dev/null
cmake --build --preset clang --target sherd_libraries

stage "release"
cmake --preset release >/dev/null
cmake --build --preset release
stage "tests"
ctest --test-dir build/release --output-on-failure --no-tests=error
