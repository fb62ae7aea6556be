#!/usr/bin/env bash
# Builds the image from deploy/docker/Dockerfile by buildah, with no registry: what the Dockerfile starts from is
# made of Debian's archive. Needs root, buildah and mmdebstrap (scripts/packages-check.txt).
#   scripts/build_image.sh [--cuda] [--programs DIR] [--output FILE]
# --programs: takes the programs of DIR (build/release/bin) in place of the stage that compiles them. That stage has this
#   machine's compiler cache: what was compiled here before, by the same compiler, is not compiled again.
# --cuda: the image of deploy/docker/Dockerfile.cuda, sherd-cuda:VERSION, of the programs and libsherd_cuda.so in DIR.
#   The toolkit that compiles that library comes from a registry, which this script does without.
# --output: writes the image to FILE for `docker load`, `podman load`, `ctr image import`.
# The image stays in build/image; its name, sherd:VERSION, is printed. Exit code 77: this machine cannot build images.
set -euo pipefail
cd "$(dirname "$0")/.."
dockerfile=deploy/docker/Dockerfile name=sherd programs='' output=''
while [ $# -gt 0 ]; do
  case $1 in
    --cuda) dockerfile=deploy/docker/Dockerfile.cuda name=sherd-cuda; shift; continue ;;
    --programs) programs=$(realpath "${2:?no DIR}") ;;
    --output) output=$(realpath "${2:?no FILE}") ;;
    *) echo "usage: scripts/build_image.sh [--cuda] [--programs DIR] [--output FILE]" >&2; exit 2 ;;
  esac
  shift 2
done
[ "$name" = sherd ] || [ -n "$programs" ] || { echo "build_image: --cuda needs --programs DIR" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "build_image: only root can make a root file system" >&2; exit 77; }
for tool in buildah mmdebstrap; do
  command -v "$tool" >/dev/null || { echo "build_image: no $tool: scripts/setup.sh --checks brings it" >&2; exit 77; }
done

work=$PWD/build/image
mkdir -p "$work"
store=(--storage-driver vfs --root "$work/storage" --runroot "$work/run")
stage() { echo "build_image: $1 (${SECONDS}s)" >&2; }
# The time of the image and of all files in it, so that equal programs and packages give an equal image.
version=$(sed -n 's/^project(sherd VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
revision=$(git rev-parse --verify -q HEAD 2>/dev/null || echo unknown)
moment=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct -- deploy/docker scripts/build_image.sh scripts/packages-runtime.txt \
  2>/dev/null || true)}
# Without a repository around.
: "${moment:=$(stat -c %Y deploy/docker/Dockerfile)}"
# Without the archive, or the right to mount, this machine cannot build; else the image is at fault, as it is where a
# step may not do something else.
give_up() {
  cat "$work/log" >&2
  ! grep -qE -e 'Could not (resolve|connect)|Temporary failure|Failed to fetch|Unable to connect' \
    -e '\b(u?mount|mounting|namespaces?|unshare|fork/exec)\b.*[Oo]peration not permitted' "$work/log" || exit 77
  exit 1
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Debian with its security updates, and without the pages that debian:12-slim leaves out too. Made again after a week.
debian=docker.io/library/debian:12
if [ -z "$(find "$work/debian" -mtime -7 2>/dev/null)" ] ||
  ! buildah "${store[@]}" inspect --type image "$debian-slim" >/dev/null 2>&1; then
  stage "Debian 12 from its archive"
  leave=()
  for path in 'exclude=/usr/share/doc/*' 'include=/usr/share/doc/*/copyright' 'exclude=/usr/share/man/*' \
    'exclude=/usr/share/info/*' 'exclude=/usr/share/locale/*'; do leave+=("--dpkgopt=path-$path"); done
  # usr-is-merged: else apt takes usrmerge, which brings all of Perl. resolv.conf, hostname: this machine's.
  SOURCE_DATE_EPOCH=$moment mmdebstrap --quiet --mode=root --variant=minbase --dpkgopt=force-unsafe-io "${leave[@]}" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr --include=usr-is-merged --aptopt='Acquire::Retries "3"' \
    --customize-hook='rm "$1/etc/resolv.conf" "$1/etc/hostname"' bookworm "$scratch/debian.tar" >"$work/log" 2>&1 ||
    give_up
  printf 'FROM scratch\nADD debian.tar /\nCMD ["bash"]\n' > "$scratch/Dockerfile"
  buildah "${store[@]}" bud -q --timestamp "$moment" -t "$debian" -t "$debian-slim" "$scratch" >"$work/log" 2>&1 || give_up
  rm "$scratch/debian.tar"
  touch "$work/debian"
fi

# All stages; those of the image itself.
common=(--isolation chroot --layers --pull-never -f "$dockerfile")
options=(--timestamp "$moment"
  --build-arg "VERSION=$version" --build-arg "REVISION=$revision"
  --label "org.opencontainers.image.base.name=debian:bookworm"
  # What the Dockerfile says too: its layers may come out of the cache with those of an earlier commit.
  --label "org.opencontainers.image.revision=$revision" --label "org.opencontainers.image.version=$version")
out=$scratch/programs/out
if [ -z "$programs" ]; then
  stage "the stage that compiles"
  cached=()
  if command -v ccache >/dev/null; then
    cache=$(ccache --get-config cache_dir)
    mkdir -p "$cache"
    # What else the cache knows a result by: the language of messages. Builds in other folders share it.
    cached=(--volume "$cache:/root/.cache/ccache" --env CCACHE_BASEDIR=/src --env CCACHE_NOHASHDIR=1 --env LANG --env LC_ALL)
  fi
  # Without the image's time: the compiler's own is what the cache knows it by.
  buildah "${store[@]}" bud "${common[@]}" "${cached[@]}" --target build -t sherd-build . >"$work/log" 2>&1 || give_up
  options+=(--build-context "build=container-image://localhost/sherd-build")
else
  given=("$programs"/sherd "$programs"/sherd-coordinator "$programs"/sherd-worker)
  if [ "$name" = sherd ]; then
    install -D -s -t "$out" "${given[@]}"
  else
    install -D -s -t "$out/bin" "${given[@]}"
    install -D -s -t "$out/lib/sherd" "$programs/libsherd_cuda.so"
    blas=$(ldd "$programs/libsherd_cuda.so" | awk '/libcublasLt/ { print $3 }')
    install -D "$(realpath "$blas")" "$out/lib/$(basename "$blas")"
  fi
  # In place of the stages that are then not run.
  options+=(--build-context "build=$scratch/programs" --build-context "toolkit=$scratch/programs")
fi
stage "the image"
buildah "${store[@]}" bud "${common[@]}" "${options[@]}" -t "$name:$version" . > "$work/log" 2>&1 || give_up
# The stage that has compiled, and what the image of this name was before.
[ -n "$programs" ] || buildah "${store[@]}" rmi sherd-build >/dev/null
buildah "${store[@]}" rmi --prune >/dev/null
if [ -n "$output" ]; then
  rm -f "$output"
  buildah "${store[@]}" push -q "$name:$version" "docker-archive:$output:$name:$version"
fi
size=$(buildah "${store[@]}" images --format '{{.Size}}' "$name:$version")
stage "$name:$version of revision ${revision:0:12}, $size"
echo "$name:$version"
