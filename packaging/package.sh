#!/bin/bash
# Packs what a build folder installs: a Debian package, or a tar archive that runs where it is unpacked.
set -euo pipefail

usage() {
  cat <<'HELP'
usage: packaging/package.sh deb|tarball BUILD FOLDER

  deb      FOLDER/pipewright_VERSION_ARCHITECTURE.deb; needs dpkg-deb and dpkg-shlibdeps (Debian: dpkg-dev)
  tarball  FOLDER/pipewright-VERSION-MACHINE.tar.gz of a portable build (meson setup BUILD -Dportable=true)

Before: meson compile -C BUILD program. The same build gives the same bytes; dates are SOURCE_DATE_EPOCH, or that of the last
commit.
HELP
}

fail() { printf 'package: error: %s\n' "$*" >&2; exit 2; }

case ${1-} in
  deb | tarball) [ $# -eq 3 ] || { usage >&2; exit 2; } ;;
  -h | --help) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac
kind=$1 build=$2 folder=$3
source=$(cd "$(dirname "$0")/.." && pwd)
[ -x "$build/pipewright" ] || fail "$build/pipewright is not built; run: meson compile -C $build program"
mkdir -p "$folder"
version=$("$build/pipewright" --version | sed -n '1s/^pipewright //p')
[ -n "$version" ] || fail "$build/pipewright --version tells no version"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null || echo 0)}

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
meson install -C "$build" --no-rebuild --quiet --destdir "$work/installed"
prefix=$(dirname "$(dirname "$(find "$work/installed" -path '*/bin/pipewright')")")
strip "$prefix/bin/pipewright"

deb() {
  local tree=$work/tree architecture depends
  command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null || fail "dpkg-deb and dpkg-shlibdeps are needed; on Debian: apt-get install dpkg-dev"
  mkdir -p "$tree/usr/share/doc/pipewright" "$tree/DEBIAN" "$work/debian"
  cp -a "$prefix/." "$tree/usr/"
  find "$tree/usr/share/man" -type f -exec gzip --best --no-name {} +
  cp "$source/LICENSE" "$tree/usr/share/doc/pipewright/copyright"
  cp "$source/CITATION.cff" "$tree/usr/share/doc/pipewright/"
  architecture=$(dpkg --print-architecture)
  printf 'Source: pipewright\n\nPackage: pipewright\nArchitecture: any\n' >"$work/debian/control"
  depends=$(cd "$work" && dpkg-shlibdeps -O "$tree/usr/bin/pipewright") || fail "dpkg-shlibdeps cannot tell which packages hold the libraries"
  cat >"$tree/DEBIAN/control" <<CONTROL
Package: pipewright
Version: $version
Architecture: $architecture
Maintainer: The pipewright developers
Section: science
Priority: optional
Depends: ${depends#shlibs:Depends=}
Recommends: librsvg2-bin
Installed-Size: $(du --summarize --apparent-size --block-size=1024 "$tree/usr" | cut -f1)
Description: predicts and plans pipeline-parallel training of neural networks
 pipewright predicts step time, idle time and memory of training over many
 accelerators, finds the best plan, and runs it with the predicted schedule.
CONTROL
  (cd "$tree" && find usr -type f -print0 | sort --zero-terminated | xargs --null md5sum >DEBIAN/md5sums)
  chmod -R u=rwX,go=rX "$tree"
  dpkg-deb --root-owner-group --build "$tree" "$folder/pipewright_${version}_$architecture.deb"
}

tarball() {
  local name tree needed
  name=pipewright-$version-$(uname -m)
  needed=$(ldd "$prefix/bin/pipewright" | awk '{print $1}' | grep -vE '^(linux-vdso|libc|libm)\.so|^/lib.*/ld-linux' || true)
  [ -z "$needed" ] || fail "$build is no portable build, it needs $(echo $needed); run: meson setup BUILD -Dportable=true"
  tree=$work/$name
  mkdir -p "$tree"
  cp -a "$prefix/." "$tree/"
  cp "$source"/{LICENSE,README.md,CITATION.cff} "$tree/"
  chmod -R u=rwX,go=rX "$tree"
  tar --create --directory "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner "$name" |
    gzip --best --no-name >"$folder/$name.tar.gz"
  echo "wrote $folder/$name.tar.gz"
}

$kind
