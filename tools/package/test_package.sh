#!/usr/bin/env bash
# `make test-package`: unpacks a .deb, looks at what is in it, and spends a newcomer's first hour with it.
# usage: tools/package/test_package.sh FILE.deb
set -euo pipefail
deb=$1
tree=$PWD
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
wrong() { echo "test-package: $*" >&2; exit 1; }

dpkg-deb -x "$deb" "$root"
depends=$(dpkg-deb -f "$deb" Depends)
for package in libc6 libstdc++6 libopenmpi libspdlog libfmt libpcre2-8 libutf8proc libxxhash libzstd libmicrohttpd libhdf5 openmpi-bin; do
  [[ $depends == *$package* ]] || wrong "depends not on $package: $depends"
done
dpkg-deb -c "$deb" | awk '$2 != "root/root" { print; bad = 1 } END { exit bad }' || wrong "files that are not root's"
share=$root/usr/share
for file in bin/temper share/temper/README.md share/temper/Makefile share/temper/conf/demo_grpo.toml share/temper/slurm/cpu.sbatch \
  share/temper/tools/demo.sh share/temper/tools/rewards/verl_reward.py share/temper/tools/trackers/wandb.py \
  share/man/man1/temper.1.gz; do
  [ -f "$root/usr/$file" ] || wrong "no $file"
done
[ "$(readlink "$share/temper/build/temper")" = /usr/bin/temper ] || wrong "share/temper/build/temper leads elsewhere"
! readelf -S "$root/usr/bin/temper" | grep -q '\.debug_info' || wrong "the program is not stripped"
"$root/usr/bin/temper" --version > /dev/null
bash -n "$share/bash-completion/completions/temper"
! command -v zsh > /dev/null || zsh -n "$share/zsh/vendor-completions/_temper"
! command -v fish > /dev/null || fish -n "$share/fish/vendor_completions.d/temper.fish"
if command -v groff > /dev/null; then
  said=$(gzip -dc "$share/man/man1/temper.1.gz" | groff -ww -man -Tutf8 2>&1 > /dev/null)
  [ -z "$said" ] || wrong "the manual page: $said"
fi
# As a user works with it: a copy of share/temper, whose build/temper is the program here.
cp -r "$share/temper" "$root/copy"
ln -sfn "$root/usr/bin/temper" "$root/copy/build/temper"
cd "$root/copy"
tools/demo_data.sh runs/demo/data
build/temper init --config conf/demo/config.json --tokenizer conf/demo --out runs/demo/model --seed 1 > /dev/null
build/temper check conf/demo_sft.toml --ranks 2 > /dev/null
env -u MAKEFLAGS -u MAKELEVEL make -s help > /dev/null
"$tree/tools/package/newcomers_hour.sh" "$root/copy"
echo "test-package: $(basename "$(readlink -f "$tree/$deb")") is sound"
