#!/usr/bin/env bash
# `make deps`: installs what is missing of the packages that temper is built with, on Debian 12 and Ubuntu 24.04.
# A non-empty first argument (DEPS_PREFIX) says that they lie in a folder of their own: nothing is done.
set -eu
packages=(g++ make pkg-config libopenmpi-dev openmpi-bin libhdf5-dev libspdlog-dev libfmt-dev libtomlplusplus-dev
  libgtest-dev libpcre2-dev libutf8proc-dev libxxhash-dev libzstd-dev libmicrohttpd-dev
  nlohmann-json3-dev)
[ -z "${1:-}" ] || exit 0
if ! command -v dpkg-query > /dev/null; then
  command -v mpicxx > /dev/null && exit 0
  echo "deps: this is neither Debian nor Ubuntu; install the counterparts of: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Abbrev}\n' "$package" 2> /dev/null | head -1 || true)
  [[ $state == ?i* ]] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
if [ "$(id -u)" != 0 ] && ! { command -v sudo > /dev/null && { sudo -n true 2> /dev/null || [ -t 0 ]; }; }; then
  echo "deps: missing packages, and no right to install them. Run as root:" >&2
  echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "deps: installing ${missing[*]}"
if ! { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
       "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"; }; then
  echo "deps: apt-get failed (see above). Once that is mended, run as root:" >&2
  echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
