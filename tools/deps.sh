#!/usr/bin/env bash
# Installs the distribution packages that temper needs and that are missing (Debian 12, Ubuntu 24.04).
set -eu
packages="g++ make pkg-config libopenmpi-dev openmpi-bin libhdf5-dev libspdlog-dev libfmt-dev libtomlplusplus-dev
  libgtest-dev libpcre2-dev libutf8proc-dev libxxhash-dev nlohmann-json3-dev"
command -v dpkg-query > /dev/null || { echo "deps: no dpkg here; install the equivalents of:" $packages >&2; exit 0; }
missing=
for p in $packages; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2> /dev/null)" = installed ] || missing="$missing $p"
done
[ -z "$missing" ] && exit 0
command="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then run=; elif sudo -n true 2> /dev/null; then run=sudo; else
  echo "deps: missing packages; run as root:  apt-get update && $command" >&2
  exit 1
fi
echo "deps: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -q > /dev/null
$run $command > /dev/null || { echo "deps: that failed; run as root:  apt-get update && $command" >&2; exit 1; }
