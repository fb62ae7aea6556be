#!/usr/bin/env bash
# On a machine with an NVIDIA GPU: builds, runs what only a card can show, measures, and prints a
# table, within ten minutes once it is built (gpu_check.py --limit).   scripts/gpu_check.sh [--write]   puts it into
# docs/gpu-results.md. Ends with 77, having done nothing, where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L 2>/dev/null | grep -q GPU; then
  echo "gpu_check: SKIPPED: there is no NVIDIA GPU here (nvidia-smi finds none); nothing ran, nothing is measured" >&2
  exit 77
fi
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader -i 0 | tr -d '. ')
# Kernels are compiled for these; a card of the same major number runs them.
case $capability in 8*) architecture=80 ;; 9*) architecture=90 ;; 10*) architecture=100 ;;
  *) echo "gpu_check: compute capability $capability is not among sm_80, sm_90 and sm_100" >&2; exit 1 ;;
esac

cmake --preset release -DSHERD_CUDA_ARCHITECTURES="$architecture" >/dev/null
targets=(sherd sherd-coordinator sherd-worker sherd_cuda gpu_nccl_check gpu_ops_check gpu_rates)
ninja -C build/release "${targets[@]}"
exec /usr/bin/python3 scripts/gpu_check.py "$@"
