#!/usr/bin/env bash
# `make package`: build/package/temper_VERSION_ARCHITECTURE.deb from what `make install` installs, and a link temper.deb
# to it. Depends on the packages of the libraries that the program is linked with, and on mpirun.
# usage: tools/package/package.sh MAKE [VARIABLE=VALUE ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v dpkg-shlibdeps > /dev/null || { echo "package: dpkg-shlibdeps is missing: apt-get install dpkg-dev" >&2; exit 1; }
out=build/package
root=$out/root
rm -rf "$out"
mkdir -p "$root/DEBIAN" "$out/debian"
"$@" --no-print-directory install DESTDIR="$PWD/$root" PREFIX=/usr > /dev/null
gzip -9n "$root/usr/share/man/man1/temper.1"
find "$root/usr" -type d -exec chmod 755 {} +
chmod -R u+w,go-w,a+rX "$root/usr"

# Ordered by time, and told apart by commit: there are no releases yet.
version=0.$(git log -1 --format=%cd --date=format:%Y%m%d.%H%M%S 2> /dev/null || date +%Y%m%d.%H%M%S)
commit=$(git rev-parse --short=12 HEAD 2> /dev/null || true)
version+=${commit:++git$commit}
architecture=$(dpkg --print-architecture)
printf 'Source: temper\n\nPackage: temper\nArchitecture: %s\n' "$architecture" > "$out/debian/control"
libraries=$(cd "$out" && dpkg-shlibdeps -O -e"root/usr/bin/temper" 2> shlibdeps.log | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || { cat "$out/shlibdeps.log" >&2; echo "package: no package of a linked library was found" >&2; exit 1; }
cat > "$root/DEBIAN/control" <<TEXT
Package: temper
Version: $version
Architecture: $architecture
Maintainer: temper <temper@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: $libraries, openmpi-bin
Recommends: make, python3
Section: science
Priority: optional
Description: post-trains language models with reinforcement learning
 One program that reads a Hugging Face folder, generates, scores, trains and
 writes a Hugging Face folder, under mpirun or srun. Configs, batch scripts
 and the README lie in /usr/share/temper.
TEXT
deb=temper_${version}_$architecture.deb
dpkg-deb --root-owner-group --build "$root" "$out/$deb" > /dev/null
ln -sfn "$deb" "$out/temper.deb"
echo "$out/$deb"
