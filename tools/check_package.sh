#!/bin/sh
# Installs the Debian package on a bare Debian 12, made by debootstrap in a temporary folder, runs it
# there with the packaged model, lints it where lintian is, and removes it again. As root, with a
# network; two minutes. By hand and at night: tests/e2e/test_package.py is what every run checks.
#   tools/check_package.sh [BUILD]     build/release by default
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
root=$(mktemp -d)
cleanup() { umount "$root/proc" 2>/dev/null || :; rm -rf --one-file-system "$root" "$root.deb"; }
trap cleanup EXIT
trap 'exit 1' INT TERM

tools/setup.sh model
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$root/deb" >/dev/null
mv "$root/deb" "$root.deb"
deb=$(ls "$root".deb/*.deb)
command -v lintian >/dev/null &&
    lintian --suppress-tags bogus-mail-host,no-changelog --fail-on error "$deb"
debootstrap --variant=minbase bookworm "$root" >/dev/null
mount -t proc proc "$root/proc"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive "$@"; }

cp "$deb" "$root/headrace.deb"
rm -rf "$root.deb"
inside apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root /headrace.deb >/dev/null
inside headrace --version
models=.cache/headrace/models
mkdir -p "$root/root/$models"
cp -r "${XDG_CACHE_HOME:-$HOME/.cache}/headrace/models/smollm2-135m" "$root/root/$models/"
inside headrace generate smollm2-135m -p 'The capital of France is' --temperature 0 --max-tokens 4 |
    tee /dev/stderr | grep -q Paris
inside apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 -o APT::Sandbox::User=root gcc libc6-dev pkg-config >/dev/null
inside sh -c 'cc /usr/share/doc/headrace/examples/hello.c -o /hello $(pkg-config --cflags --libs headrace)'
inside /hello smollm2-135m 'Once upon a time' | grep -q .
inside apt-get purge -y -qq headrace >/dev/null
[ ! -e "$root/usr/bin/headrace" ] && [ ! -e "$root/usr/lib/libheadrace.so.0" ]
echo "the package installs, runs, links and goes"
