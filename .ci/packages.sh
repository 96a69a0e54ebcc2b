# shellcheck shell=bash
# Debian packages that scripts need; sourced by them. `fail WHAT HINT` must be there: it ends the script.

# Building: the C compiler links Rust programs and builds zstd, make builds jemalloc. fusermount3 mounts for users
# who may not.
# shellcheck disable=SC2034
BUILD_PACKAGES=(cc:gcc strip:binutils /usr/include/stdio.h:libc6-dev make:make fusermount3:fuse3)

# What tests run: all of them for git, patch and a terminal, and for root small disks of ext4.
# shellcheck disable=SC2034
TEST_PACKAGES=(git:git patch:patch script:bsdutils strace:strace setfattr:attr setfacl:acl)
[ "$(id -u)" -ne 0 ] || TEST_PACKAGES+=(/usr/sbin/mkfs.ext4:e2fsprogs)

# What .ci/run wants beside: fuzz targets link against libFuzzer, which is C++; suites that others wrote.
CI_PACKAGES=(c++:g++ sqlite3:sqlite3 python3:python3)
python3 -c 'import ensurepip' 2>/dev/null || CI_PACKAGES+=(/usr/share/doc/python3-venv:python3-venv)
[ "$(id -u)" -ne 0 ] || CI_PACKAGES+=(/usr/include/sys/acl.h:libacl1-dev pkg-config:pkg-config)

# need NAME:PACKAGE...: installs the packages of those that are missing; NAME is a command or a /PATH.
need() {
    local pair missing=() root=()
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || [ -e "${pair%%:*}" ] || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    local what="these packages are missing: ${missing[*]}"
    local remedy="as root: apt-get install ${missing[*]}"
    command -v apt-get >/dev/null || fail "$what" "install them with this system's own tools"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || fail "$what" "$remedy"
        printf 'sudo is asked to install %s\n' "${missing[*]}"
        sudo -n true 2>/dev/null || sudo -v || fail "$what, and sudo refuses" "$remedy"
        root=(sudo)
    fi
    printf 'installing %s\n' "${missing[*]}"
    # Where the lists cannot be fetched, those that are there may do; apt-get says what went wrong.
    "${root[@]}" apt-get update -qq || true
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null ||
        fail "apt-get cannot install ${missing[*]}" \
            "see above; without a network, install them by other means and try again"
}

# need_space DIRECTORY MEGABYTES WHAT: fails where the disk has less; DIRECTORY need not exist.
need_space() {
    local at=$1 free
    while [ ! -d "$at" ]; do at=$(dirname "$at"); done
    free=$(df -Pm "$at" | awk 'NR == 2 { print $4 }')
    [ "$free" -ge "$2" ] ||
        fail "$3 needs $2 MB, and $at has $free MB free" \
            "make room there, or give another directory with CARGO_TARGET_DIR=DIR"
}
