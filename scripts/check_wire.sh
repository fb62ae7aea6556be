#!/usr/bin/env bash
# Lints the published protos with buf (PyPI: buf-bin), in a virtual environment below build/.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/checks-venv
if [ ! -x "$venv/bin/buf" ]; then
  /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check buf-bin==1.75.0
fi
(cd proto && "../$venv/bin/buf" lint)
echo "buf lint: clean"
