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

# Runs a command as root.
as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  else
    command -v sudo >/dev/null || { echo "setup: run as root, or install sudo" >&2; exit 1; }
    sudo "$@"
  fi
}

if [ ${#missing[@]} -gt 0 ]; then
  echo "setup: installing ${missing[*]}" >&2
  as_root env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

# Prometheus is unpacked and not installed: its package would start a service.
prometheus=$PWD/../build/tools/prometheus
if [ "${1:-}" = "--checks" ] && [ ! -x "$prometheus/usr/bin/prometheus" ]; then
  echo "setup: unpacking prometheus below build/tools" >&2
  download=$(mktemp -d)
  trap 'rm -rf "$download"' EXIT
  fetch() { (cd "$download" && apt-get download -qq -o APT::Sandbox::User=root prometheus >&2); }
  fetch || { as_root apt-get update -qq && fetch; }
  rm -rf "$prometheus"
  mkdir -p "$prometheus"
  dpkg-deb -x "$download"/prometheus_*.deb "$prometheus"
fi
