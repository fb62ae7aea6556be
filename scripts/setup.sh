#!/usr/bin/env bash
# Installs the Debian packages that are missing. `setup.sh --checks` adds what the test suite needs,
# `setup.sh --bench` the peers that the benchmarks compare with.
# Works as root or as a user with sudo; does nothing, and asks for no password, when all are there.
set -euo pipefail
cd "$(dirname "$0")"

lists=(packages.txt)
[ "${1:-}" = "--checks" ] && lists+=(packages-check.txt)
[ "${1:-}" = "--bench" ] && lists+=(packages-bench.txt)

missing=()
while read -r package; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done < <(grep -hv '^#' "${lists[@]}")

if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
echo "setup: installing ${missing[*]}" >&2
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "setup: run as root, or install sudo" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
