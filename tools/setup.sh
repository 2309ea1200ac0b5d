# SPDX-License-Identifier: BSD-3-Clause
# Set-up shared by tools/demo and tools/check; to be sourced. Installs the Debian packages that are
# missing (as root or with sudo; no network is touched when none are) and builds.

# What the project is built with and its demo runs, and what the tests add.
demo_packages=(gcc g++ pkg-config meson ninja-build python3 git procps
  libev-dev libjansson-dev libyaml-dev libisal-dev libcmocka-dev
  openmpi-bin libopenmpi-dev fio tar findutils)
check_packages=("${demo_packages[@]}" clang-14 libclang-rt-14-dev clang-format-14 make strace sqlite3)

say() {
  printf '\n== %s\n' "$*"
}

# install_missing PACKAGE...
install_missing() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
      echo "missing packages: ${missing[*]}; run as root or install sudo" >&2
      return 1
    }
    as_root=(sudo)
  fi
  say "installing ${missing[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends "${missing[@]}"
}

# build DIRECTORY [meson options]: configures once, then brings it up to date.
build() {
  local dir=$1
  shift
  [ -f "$dir/build.ninja" ] || meson setup "$dir" "$@" >"$dir.log" 2>&1 ||
    { cat "$dir.log" >&2; return 1; }
  rm -f "$dir.log"
  ninja -C "$dir" --quiet 2>&1
}
