#!/usr/bin/env bash
# The whole test suite: static checks, the release build with every test, and the sanitizer builds with the suites
# that pay under them. Budgets on two cores are stated in tests/README.md.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh --checks
# Clones in different folders share the compiler cache.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
stage() { printf '\n== %s (%ss)\n' "$1" "$SECONDS"; }

stage "layers"
/usr/bin/python3 scripts/check_layers.py
stage "wire"
scripts/check_wire.sh

stage "sanitizers: address and undefined behaviour"
cmake --preset asan >/dev/null
cmake --build --preset asan --target sherd_asan_tests
ctest --test-dir build/asan -L asan -j "$(nproc)" --output-on-failure --no-tests=error

stage "sanitizers: thread"
cmake --preset tsan >/dev/null
cmake --build --preset tsan --target sherd_tsan_tests
ctest --test-dir build/tsan -L tsan -j "$(nproc)" --output-on-failure --no-tests=error

stage "release"
# With the benchmarks, so that they compile.
cmake --preset release -DSHERD_BUILD_BENCH=ON >/dev/null
cmake --build --preset release
stage "thread-safety analysis"
/usr/bin/python3 scripts/check_thread_safety.py build/release
stage "fuzzing"
SHERD_FUZZ_SEED=1 scripts/check_fuzz.sh 15
stage "deployment files"
scripts/check_deploy.sh
stage "seeded faults"
/usr/bin/python3 scripts/check_faults.py
stage "kill points"
/usr/bin/python3 scripts/check_kill_points.py
stage "tests"
ctest --test-dir build/release -j "$(nproc)" --output-on-failure --no-tests=error
