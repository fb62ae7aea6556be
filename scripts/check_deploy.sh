#!/usr/bin/env bash
# Manifests, image, compose file and units: that they are sound, that mistakes in them are found, and that pods of the
# manifests run. Needs the release build. What reads schemas comes from PyPI, into an environment below build/.
#   [SHERD_COMPILE_IMAGE=1] scripts/check_deploy.sh    1: the image's programs are compiled in it, which takes minutes more
set -euo pipefail
cd "$(dirname "$0")/.."
venv=build/deploy-venv
if [ ! -e "$venv/complete" ]; then
  rm -rf "$venv"
  /usr/bin/python3 -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check kubernetes-validate==1.37.0
  # For its schema alone, hence without what it depends on.
  "$venv/bin/pip" install -q --disable-pip-version-check --no-deps docker-compose==1.29.2
  touch "$venv/complete"
fi
export SHERD_BIN=${SHERD_BIN:-$PWD/build/release/bin} PYTHONDONTWRITEBYTECODE=1
suites=(manifests images)
# The image of these programs, whose files the pods then have.
given=(--programs "$SHERD_BIN")
[ -z "${SHERD_COMPILE_IMAGE-}" ] || given=()
if SHERD_IMAGE=$(scripts/build_image.sh "${given[@]}"); then
  export SHERD_IMAGE
  suites+=(image)
elif [ $? = 77 ]; then
  unset SHERD_IMAGE
  echo "check_deploy: NOT TESTED: no image is built on this machine; pods run with its own files" >&2
else
  exit 1
fi
for suite in "${suites[@]}" pods; do
  "$venv/bin/python" "tests/deploy/${suite}_test.py" -v
done
