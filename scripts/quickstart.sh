#!/usr/bin/env bash
# From a fresh clone to a trained model: installs what is missing, builds, trains a small GPT on English text
# with four workers under zero3, and prints a sample of what it learnt.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
# Clones in different folders share the compiler cache.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
echo "quickstart: building (the first time takes a few minutes)" >&2
cmake --preset release >/dev/null
cmake --build --preset release --target sherd sherd-coordinator sherd-worker
build/release/bin/sherd run examples/fortunes.yaml --workers 4 --out out/fortunes
echo
echo "A sample of what the model writes:"
build/release/bin/sherd sample out/fortunes/weights --prompt "The " --tokens 300 --seed 1
cat <<'TXT'

Where to go next:
  build/release/bin/sherd --help                     all commands
  examples/fortunes.yaml                             the job file of this run; docs/job-file.md lists every key
  build/release/bin/sherd run examples/fortunes.yaml --workers 2 --set parallel.strategy=ddp
                                                     the same loss, bit for bit, under another strategy
  scripts/test.sh                                    the whole test suite
TXT
