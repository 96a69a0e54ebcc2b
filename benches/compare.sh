#!/usr/bin/env bash
# Side by side: the same work on the plain file system and in a mount over it, in the same run.
#
#   benches/compare.sh [DIR]     DIR: where to work (default: a temporary directory)
#
# Prints a row of milliseconds and a ratio for each kind of work, then the wall times of the commands
# themselves (process start to exit): checkpoint and rollback of 10 and 1,000 changed files in a
# project of 10,000. Run it on a machine that does nothing else; the disk's own fsync is part of it.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo program
cargo build --release --locked --bin compare
target=${CARGO_TARGET_DIR:-target}/release
target=$(cd "$target" && pwd)
work=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/agentvfs-compare.XXXXXX")
export AGENTVFS_HOME=$work/home
vfs=$target/agentvfs
cleanup() {
    "$vfs" workspace stop --force --no-checkpoint compare >/dev/null 2>&1 || true
    # The daemon ends by itself when nothing is mounted; its store goes after it.
    for ((tries = 0; tries < 100; tries++)); do
        [ -S "$AGENTVFS_HOME/daemon.sock" ] || break
        sleep 0.1
    done
    rm -rf "$work"
}
trap cleanup EXIT

mkdir "$work/plain" "$work/base"
for ((d = 0; d < 100; d++)); do
    mkdir "$work/base/p$d"
    for ((f = 0; f < 100; f++)); do
        echo "file $d $f" >"$work/base/p$d/f$f"
    done
done
cd "$work/base"
"$vfs" workspace start compare --from . --mount "$work/mnt" >/dev/null
cd "$work"
"$target/compare" "$work/plain" "$work/mnt"
"$vfs" workspace checkpoint compare ready >/dev/null

ms() {
    local start=$EPOCHREALTIME
    "${@:2}" >/dev/null
    local end=$EPOCHREALTIME
    printf '%s\t%d.%01d ms\n' "$1" $(((${end/./} - ${start/./}) / 1000)) \
        $(((${end/./} - ${start/./}) / 100 % 10))
}
dirty() {
    for ((i = 0; i < $1; i++)); do
        echo "changed $RANDOM" >"$work/mnt/p$((i % 100))/f$((i / 100))"
    done
}
for n in 10 1000; do
    dirty "$n"
    ms "rollback of $n files" "$vfs" workspace rollback compare ready
    dirty "$n"
    ms "checkpoint of $n files" "$vfs" workspace checkpoint compare "after-$n"
done
