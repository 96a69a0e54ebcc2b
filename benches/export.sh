#!/usr/bin/env bash
# Export and import beside `cp -a` of the same tree, on the same file system and in the same run.
#
#   benches/export.sh [DIR [PROJECT]]     DIR: where to work (default: a temporary directory);
#                                         PROJECT: what to export (default: 10,000 files of 1 to 16 KiB
#                                         and 256 MiB in large ones, which do not compress)
#
# Each row is the best of five, in milliseconds, taken in turns: `cp -a`, `cp -a` with sync of what was
# copied, export (which always is on stable storage when it ends), import. Then the size of the export
# beside that of the content.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo program
target=${CARGO_TARGET_DIR:-target}/release
vfs=$(cd "$target" && pwd)/agentvfs
work=$(mktemp -d "${1:-${TMPDIR:-/tmp}}/agentvfs-export.XXXXXX")
export AGENTVFS_HOME=$work/home
cleanup() {
    "$vfs" workspace stop --force --no-checkpoint bench >/dev/null 2>&1 || true
    for ((tries = 0; tries < 100; tries++)); do
        [ -S "$AGENTVFS_HOME/daemon.sock" ] || break
        sleep 0.1
    done
    rm -rf "$work"
}
trap cleanup EXIT

project=${2:-}
if [ -z "$project" ]; then
    project=$work/project
    mkdir "$project"
    head -c 80M /dev/urandom >"$work/noise"
    for ((i = 0; i < 10000; i++)); do
        ((i % 100)) || mkdir "$project/d$((i / 100))"
        tail -c "+$((i * 8000 + 1))" "$work/noise" |
            head -c "$((1024 + i * 7919 % 15360))" >"$project/d$((i / 100))/f$i"
    done
    for ((i = 0; i < 4; i++)); do
        head -c 64M /dev/urandom >"$project/large$i"
    done
fi
"$vfs" workspace start bench --from "$project" >/dev/null
# The id of a checkpoint is known once the project is in the store.
"$vfs" workspace checkpoint bench ready >/dev/null

declare -A best
round() { # NAME COMMAND...
    local start=$EPOCHREALTIME end took
    "${@:2}" >/dev/null
    end=$EPOCHREALTIME
    took=$(((${end/./} - ${start/./}) / 100))
    [ -n "${best[$1]:-}" ] && [ "${best[$1]}" -le "$took" ] || best[$1]=$took
}
copy_synced() { cp -a "$project" "$work/copy" && sync -f "$work/copy"; }
for ((i = 0; i < 5; i++)); do
    round 'cp -a' cp -a "$project" "$work/copy"
    rm -rf "$work/copy"
    sync -f "$work"
    round 'cp -a, synced' copy_synced
    rm -rf "$work/copy"
    sync -f "$work"
    round export "$vfs" export bench --ref ready --force "$work/x.db"
    round import "$vfs" import "$work/x.db" --workspace "copy$i"
    "$vfs" workspace delete "copy$i" --yes >/dev/null
done
printf 'work\tms\n'
for name in 'cp -a' 'cp -a, synced' export import; do
    printf '%s\t%d.%d\n' "$name" $((best[$name] / 10)) $((best[$name] % 10))
done
content=$(find "$project" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum }')
size=$(stat -c %s "$work/x.db")
printf 'content %d bytes, export %d bytes: %d.%02d\n' "$content" "$size" \
    $((size / content)) $((size * 100 / content % 100))
