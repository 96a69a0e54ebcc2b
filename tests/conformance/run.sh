#!/usr/bin/env bash
# Suites that were not written for agentvfs, on a mount of its own; about two minutes once their
# programs are built.
#
#   tests/conformance/run.sh [--transport fuser] [SUITE...]
#   tests/conformance/run.sh build     builds the crates that suites want, and runs none
#
# Suites: pjdfstest, fsx, sqlite, git, agentfs; all without arguments. --transport fuser: on a mount by the second way to
# the kernel (docs/transport.md).
#
# The binary is $AGENTVFS_BIN, else target/debug/agentvfs, which is built. Programs of the suites are
# installed by name and version: Debian packages; crates and Python packages into target/conformance.
# pjdfstest needs root, for it acts as several users; the others run as whoever starts this.
#
# A case that takes longer than $CASE_SECONDS (120) fails; AGENTFS_FILES=10000 needs more.
#
# A case may fail only if docs/semantics.md lists it under "Exceptions"; each other failure fails this. By the second way
# those that docs/transport.md lists must fail, too: one that passes is to be removed from the list.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
tools=$target/conformance
export PATH=$tools/bin:$PATH

# For scripts that cannot go on; a case that fails is `fail SUITE CASE WHY`.
give_up() {
    printf 'conformance: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

# need NAME:PACKAGE..., as .ci/packages.sh has it.
packages() {
    (
        fail() { give_up "$@"; }
        # shellcheck source=/dev/null
        . "$repository/.ci/packages.sh"
        need "$@"
    ) || exit 1
}

# crate NAME VERSION: its program, built once.
crate() {
    [ -x "$tools/bin/$1" ] && [ "$(cat "$tools/$1.version" 2>/dev/null)" = "$2" ] && return
    cargo install --quiet --locked --root "$tools" --target-dir "$tools/build" "$1" --version "$2"
    echo "$2" >"$tools/$1.version"
}

if [ "${1:-}" = build ]; then
    while read -r _ name version; do
        crate "$name" "$version"
    done < <(grep -h '^crate ' "$here"/*.sh)
    exit
fi

# exceptions DOCUMENT SECTION: SUITE:CASE of the last column of the section's table.
exceptions() {
    sed -n "/^## $2/,/^## /s/^| .* | \\([^|]*\\) |\$/\\1/p" "$repository/docs/$1" |
        tr ', ' '\n\n' | grep ':' || true
}

# How a suite's cases went: these functions are what the suites call.
passed=0 failures=() excused=()
pass() { passed=$((passed + 1)); }
fail() { # SUITE CASE WHY
    if grep -qxF "$1:$2" <<<"$listed"; then
        excused+=("$1:$2")
    else
        failures+=("$1:$2")
        printf 'FAILED %s:%s: %s\n' "$1" "$2" "$3"
    fi
}

# check SUITE CASE COMMAND...: a case that is a command; it runs in a directory of its own.
check() {
    local suite=$1 name=$2 log
    shift 2
    log=$(mktemp "$scratch/log.XXXXXX")
    mkdir -p "$work/$suite"
    if (cd "$work/$suite" && timeout "${CASE_SECONDS:-120}" "$@") >"$log" 2>&1 </dev/null; then
        pass
    else
        fail "$suite" "$name" "$(tail -n 3 "$log" | tr '\n' ' ')"
    fi
}

take_down() {
    cd /
    "$agentvfs" workspace stop conformance --force --no-checkpoint >/dev/null 2>&1 || true
    for _ in $(seq 100); do
        [ -S "$AGENTVFS_HOME/daemon.sock" ] || break
        sleep 0.1
    done
    rm -rf --one-file-system "$scratch"
}

agentvfs=${AGENTVFS_BIN:-$target/debug/agentvfs}
[ -n "${AGENTVFS_BIN:-}" ] || (cd "$repository" && cargo build --quiet --locked --bin agentvfs)
transport=
if [ "${1:-}" = --transport ]; then
    transport=${2:?--transport NAME}
    shift 2
fi
listed=$(exceptions semantics.md Exceptions) must_fail=
if [ -n "$transport" ]; then
    export AGENTVFS_TRANSPORT=$transport
    must_fail=$(exceptions transport.md "What the crate cannot carry")
    listed+=$'\n'$must_fail
fi
scratch=$(mktemp -d)
chmod 755 "$scratch"
export AGENTVFS_HOME=$scratch/home
unset AGENTVFS_WORKSPACE AGENTVFS_BRANCH
trap take_down EXIT
mkdir "$scratch/project"
# A short path: sockets have names of 107 bytes at most.
work=$scratch/m
"$agentvfs" workspace start conformance --from "$scratch/project" --mount "$work" \
    --suid --dev >/dev/null

[ $# -gt 0 ] || set -- pjdfstest fsx sqlite git agentfs
for suite in "$@"; do
    start=$SECONDS before=$passed
    # shellcheck source=/dev/null
    . "$here/$suite.sh"
    printf '%s: %d passed, %d s\n' "$suite" "$((passed - before))" "$((SECONDS - start))"
done
for case in $must_fail; do
    ran=" $* " excepted=" ${excused[*]-} "
    if [[ $ran = *" ${case%%:*} "* && $excepted != *" $case "* ]]; then
        failures+=("$case")
        printf 'FAILED %s: it passes, but docs/transport.md lists it\n' "$case"
    fi
done
[ ${#excused[@]} -eq 0 ] || printf 'exceptions: %s\n' "${excused[*]}"
printf 'conformance: %d passed, %d failed, %d excepted\n' \
    "$passed" "${#failures[@]}" "${#excused[@]}"
[ ${#failures[@]} -eq 0 ] && [ "$passed" -gt 0 ]
