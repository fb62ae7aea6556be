#!/usr/bin/env bash
# Runs every target of tests/fuzz for SECONDS (default 10) each, from its corpus and what earlier runs left below build/.
#   scripts/check_fuzz.sh [SECONDS [TARGET…]]
# An input that breaks a target is left in build/fuzz/found, and named; put it into tests/fuzz/corpus/TARGET when it is mended.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
shift || true
if ! command -v clang++ >/dev/null || ! compgen -G "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null; then
  echo "check_fuzz: SKIPPED: no clang with its fuzzer" >&2
  exit 0
fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(cd tests/fuzz && ls ./*_fuzz.cc | sed 's|^\./||; s|_fuzz\.cc$||')
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/%/_fuzz}"
mkdir -p build/fuzz/found
for target in "${targets[@]}"; do
  mkdir -p "build/fuzz/grown/$target"
  printf '%s: ' "$target"
  log=build/fuzz/$target.log
  if ! "build/fuzz/bin/${target}_fuzz" "build/fuzz/grown/$target" "tests/fuzz/corpus/$target" -max_total_time="$seconds" \
      -artifact_prefix="build/fuzz/found/$target-" -timeout=20 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 >"$log" 2>&1; then
    tail -n 60 "$log"
    exit 1
  fi
  sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tr '\n' ' '
  echo "inputs"
done
