#!/usr/bin/env bash
# Runs targets of tests/fuzz for SECONDS (default 10) each, as many at once as there are cores, from their corpus and what
# earlier runs left below build/. Without names: all but `coordinator`, which takes minutes to build.
#   [SHERD_FUZZ_SEED=N] scripts/check_fuzz.sh [SECONDS [TARGET…]]
# With a seed the same inputs come in the same order, as in CI, where a find must be a change's own.
# An input that breaks a target is left in build/fuzz/found, and named; put it into tests/fuzz/corpus/TARGET when it is mended.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
shift || true
if ! command -v clang++ >/dev/null || ! compgen -G "/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a" >/dev/null; then
  echo "check_fuzz: SKIPPED: NOT TESTED: no clang with its fuzzer" >&2
  exit 0
fi
targets=("$@")
[ ${#targets[@]} -gt 0 ] ||
  mapfile -t targets < <(cd tests/fuzz && ls ./*_fuzz.cc | sed 's|^\./||; s|_fuzz\.cc$||' | grep -vx coordinator)
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --target "${targets[@]/%/_fuzz}"
mkdir -p build/fuzz/found

fuzz() {
  local target=$1 log=build/fuzz/$1.log
  mkdir -p "build/fuzz/grown/$target"
  if ! "build/fuzz/bin/${target}_fuzz" "build/fuzz/grown/$target" "tests/fuzz/corpus/$target" -max_total_time="$2" \
      -artifact_prefix="build/fuzz/found/$target-" -seed="${SHERD_FUZZ_SEED:-0}" -timeout=20 -rss_limit_mb=4096 -max_len=65536 -print_final_stats=1 >"$log" 2>&1; then
    printf '%s: BROKEN\n%s\n' "$target" "$(tail -n 60 "$log")"
    return 1
  fi
  echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs"
}
export -f fuzz
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c 'fuzz "$@"' fuzz {} "$seconds"
