#!/usr/bin/env bash
# How long `true` takes in `agentvfs run` whose workspace is running, in bwrap if there is one, and as it is: the least
# and the median of ROUNDS (100), in turns.
#
#   tests/agents/startup.sh AGENTVFS DIR     DIR is empty and visible in a sandbox
set -euo pipefail
agentvfs=$1 dir=$2
export AGENTVFS_HOME="$dir/store" HOME="$dir/home"
mkdir -p "$dir/project" "$HOME" "$dir/copies"/{.claude,.codex,.config,.cache,.npm,.cargo}
printf '{}\n' >"$dir/copies/.claude.json"
cd "$dir/project"
"$agentvfs" workspace start --from . >/dev/null
trap '"$agentvfs" workspace stop project >/dev/null 2>&1' EXIT

plain() { /bin/true; }
bubblewrap() { bwrap --ro-bind / / --bind "$PWD" "$PWD" --dev /dev --proc /proc --tmpfs /tmp --unshare-all /bin/true; }
run() { "$agentvfs" run --quiet --session s -- /bin/true; }
run_with_copies() { HOME="$dir/copies" "$agentvfs" run --quiet --session s -- /bin/true; }

names=(plain run run_with_copies)
! command -v bwrap >/dev/null || names+=(bubblewrap)
for round in $(seq "${ROUNDS:-100}"); do
    for name in "${names[@]}"; do
        since=${EPOCHREALTIME/./}
        "$name"
        printf '%d\n' $((${EPOCHREALTIME/./} - since)) >>"$dir/$name.us"
    done
done
for name in "${names[@]}"; do
    sort -n "$dir/$name.us" | awk -v name="$name" '{ all[NR] = $1 } END {
        printf "%s: least %.1f ms, median %.1f ms\n", name, all[1] / 1000, all[int((NR + 1) / 2)] / 1000 }'
done
