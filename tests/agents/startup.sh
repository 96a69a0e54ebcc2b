#!/usr/bin/env bash
# How long `true` takes in `agentvfs run` whose workspace is running, in bwrap if there is one, and as it is: the least
# and the median of ROUNDS (100), in turns, and how much of that is over plain execution. The goal is 15 ms for `run`, with
# a release build on a quiet machine. A second run of the session is `run_joining`: it takes its /tmp from the first.
#
#   tests/agents/startup.sh AGENTVFS DIR     DIR is empty and visible in a sandbox: not below /tmp, /var/tmp or /run
#
# To repeat: cargo program && tests/agents/startup.sh target/release/agentvfs "$(mktemp -d -p "$HOME")"
set -euo pipefail
agentvfs=$(realpath "$1") dir=$(realpath "$2")
export AGENTVFS_HOME="$dir/store" HOME="$dir/home"
mkdir -p "$dir/project" "$HOME" "$dir/copies"/{.claude,.codex,.config,.cache,.npm,.cargo}
printf '{}\n' >"$dir/copies/.claude.json"
cd "$dir/project"
"$agentvfs" workspace start --from . >/dev/null
trap '"$agentvfs" workspace stop project >/dev/null 2>&1' EXIT

plain() { /bin/true; }
bubblewrap() { bwrap --ro-bind / / --bind "$PWD" "$PWD" --dev /dev --proc /proc --tmpfs /tmp --unshare-all /bin/true; }
run() { "$agentvfs" run --quiet --session s -- /bin/true; }
run_joining() { run; }
run_with_copies() { HOME="$dir/copies" "$agentvfs" run --quiet --session s -- /bin/true; }

names=(plain run run_with_copies)
! command -v bwrap >/dev/null || names+=(bubblewrap)
measured() {
    local since=${EPOCHREALTIME/./}
    "$1"
    printf '%d\n' $((${EPOCHREALTIME/./} - since)) >>"$dir/$1.us"
}
for round in $(seq "${ROUNDS:-100}"); do
    for name in "${names[@]}"; do measured "$name"; done
done
"$agentvfs" run --quiet --session s -- sleep 1000 &
going=$!
until "$agentvfs" run --list | grep -q sleep; do sleep 0.1; done
for round in $(seq "${ROUNDS:-100}"); do measured run_joining; done
kill "$going"
wait "$going" || true
names+=(run_joining)
# Least and median in microseconds.
figures() { sort -n "$dir/$1.us" | awk '{ all[NR] = $1 } END { print all[1], all[int((NR + 1) / 2)] }'; }
read -r plain_least plain_median <<<"$(figures plain)"
"$agentvfs" --version
printf '%d rounds on %d processors, load %s\n' "${ROUNDS:-100}" "$(nproc)" "$(cut -d' ' -f1 /proc/loadavg)"
for name in "${names[@]}"; do
    read -r least median <<<"$(figures "$name")"
    awk -v name="$name" -v least="$least" -v median="$median" -v pl="$plain_least" -v pm="$plain_median" 'BEGIN {
        printf "%s: least %.1f ms, median %.1f ms", name, least / 1000, median / 1000
        if (name != "plain") printf "; over plain %.1f and %.1f ms", (least - pl) / 1000, (median - pm) / 1000
        printf "\n" }'
done
