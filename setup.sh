#!/bin/bash
# Sets up pipewright on Debian 12: installs the packages that are missing, configures and builds into build/.
# Running it again does only what is still to do; without network it works once the packages are there.
set -euo pipefail
cd "$(dirname "$0")"

usage() {
  cat <<'TEXT'
usage: ./setup.sh [--test | --packages] [--help]

  (nothing)    install missing packages, configure, build what a user needs: build/pipewright
  --test       build the tests and the Python module, too, and run them
  --packages   only install missing packages, those of the tests and of .ci/run too

Needs root, or a user with sudo, only when a package is missing.
TEXT
}

# What building needs. Debian's names; one reason each is in docs/decisions/0005-dependencies.md.
build_packages=(meson ninja-build pkg-config g++ libboost-graph-dev libeigen3-dev libcli11-dev libyaml-cpp-dev
  libfmt-dev nlohmann-json3-dev zlib1g-dev libexpat1-dev libssl-dev libsqlite3-dev doctest-dev libbenchmark-dev)
# What the tests need on top (Open MPI and jsonschema: without them they skip its transport, and schemas), and what .ci/run needs on top of that.
test_packages=(python3 python3-dev python3-venv python3-jsonschema python3-yaml libopenmpi-dev openmpi-bin)
gate_packages=(clang-format clang-16 libclang-rt-16-dev)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: error: %s\n' "$*" >&2; exit 2; }

installed() { # is Debian package $1 installed?
  [ "$(dpkg-query --show --showformat='${db:Status-Abbrev}' "$1" 2>/dev/null | cut -c1-2)" = ii ]
}

install_missing() { # the packages among $@ that are not installed
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: expecting the counterparts of these packages to be there: $*"
    return
  fi
  local package missing=()
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  if [ "${#missing[@]}" -eq 0 ]; then
    say "packages: all $# are installed"
    return
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
      fail "packages are missing and this user is neither root nor has sudo; as root run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "packages: installing ${missing[*]}"
  "${as_root[@]}" apt-get update --quiet
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --quiet --no-install-recommends "${missing[@]}"
}

# What the Python module needs and Debian 12 lacks, for the tests alone. Without network, or where it takes too long, the
# module is left out, and its tests say why they are skipped.
python_environment() {
  local folder=build/python-env
  [ ! -f build/build.ninja ] || return 0 # configured already, with the module or without
  mkdir -p build
  say "fetching nanobind, numpy and hypothesis for the Python module into $folder"
  if ! { python3 -m venv "$folder" &&
    timeout 90 "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --timeout 10 --retries 1 --only-binary :all: \
      "nanobind>=2.4" numpy hypothesis; } >build/python-env.log 2>&1; then
    rm -rf "$folder"
    say "no Python module: $(tail -n 1 build/python-env.log)"
  fi
}

build() { # the targets $@; none: all
  if [ ! -f build/build.ninja ]; then
    say "configuring build/"
    meson setup build
  fi
  say "building ${*:-the program and the tests}"
  meson compile -C build "$@"
}

mode=build
case "${1-}" in
  '') ;;
  --test) mode=test ;;
  --packages) mode=packages ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; fail "unknown argument \"$1\"" ;;
esac
[ $# -le 1 ] || { usage >&2; fail "one argument at most, got $#"; }

case $mode in
  packages) install_missing "${build_packages[@]}" "${test_packages[@]}" "${gate_packages[@]}" ;;
  build)
    install_missing "${build_packages[@]}"
    build program
    say "done: build/pipewright"
    ;;
  test)
    install_missing "${build_packages[@]}" "${test_packages[@]}"
    python_environment
    build
    say "running all tests"
    meson test -C build --print-errorlogs
    ;;
esac
