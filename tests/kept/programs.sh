#!/usr/bin/env bash
# Real programs in a mount whose daemon is killed again and again: git, SQLite, cargo, fsx and shells in tmux must
# notice nothing. What is not installed of fsx (crates.io) and tmux is left out, and said.
#
#   tests/kept/programs.sh PROGRAM DIR      PROGRAM: an agentvfs; DIR: an empty directory for everything
#
# Settings: ROUNDS (3) of all programs; PAUSE (0.15), seconds between two strikes; STRIKE: kill (so by default), or
# replace: two builds take the mount over from each other, by turns.
set -euo pipefail

program=$(realpath "$1")
dir=$(realpath "$2")
mount=$dir/home/mnt/project
export AGENTVFS_HOME=$dir/home AGENTVFS_KEEPER=1000000000
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'

say() { printf '%s\n' "$*"; }

strikes=$dir/strikes going_on=$dir/going-on
: >"$strikes" >"$going_on"
kill_daemon() { pkill -KILL -f "^agentvfs daemon --root $AGENTVFS_HOME"; }
replace_daemon() {
    local turn=$(($(stat -c %s "$strikes") % 2))
    "${builds[turn]}" start project >/dev/null
}
cp "$program" "$dir/agentvfs"
builds=("$dir/agentvfs" "$program")
strike() {
    while sleep "${PAUSE:-0.15}" && [ -e "$going_on" ]; do
        if "${STRIKE:-kill}_daemon"; then printf x >>"$strikes"; fi
        # Most daemons live until they serve: programs go on also where the machine is slow.
        [ $((RANDOM % 4)) -eq 0 ] || stat -f "$mount" >/dev/null
    done
}

# Thirty commits beside thirty others, rebased: the tree and the ids are known from the same outside of the mount.
with_git() {
    local n
    git init -q -b main "$1"
    cd "$1"
    for n in $(seq 30); do
        printf 'line %s\n' "$n" >>base
        git add base
        git commit -q -m "base $n"
    done
    git checkout -q -b work HEAD~20
    for n in $(seq 30); do
        mkdir -p "d$((n % 3))"
        printf 'work %s\n' "$n" >"d$((n % 3))/f$n"
        git add .
        git commit -q -m "work $n"
    done
    git rebase -q main
    git gc -q
    git fsck --strict >/dev/null 2>&1
    git status --porcelain
    git rev-parse HEAD
}

with_sqlite() {
    local n
    sqlite3 "$1" 'PRAGMA journal_mode=WAL; CREATE TABLE t(n INTEGER PRIMARY KEY, text TEXT);' >/dev/null
    for n in $(seq 200); do
        printf 'BEGIN; INSERT INTO t VALUES(%d, hex(randomblob(200))); UPDATE t SET text = text WHERE n %% 7 = 0; COMMIT;\n' "$n"
    done | sqlite3 "$1"
    sqlite3 "$1" 'PRAGMA integrity_check; SELECT count(*), max(n) FROM t;'
}

with_cargo() {
    cargo new --quiet --vcs none --name built "$1"
    cd "$1"
    cargo run --quiet
    printf 'fn main() { println!("{}", (1..=10).sum::<u32>()); }\n' >src/main.rs
    cargo run --quiet
    cargo clean --quiet
    cargo run --quiet
}

# Random calls on one file, each byte known, also through mappings.
with_fsx() {
    printf 'flen = 262144\n[opsize]\nmax = 65536\n[weights]\nmapread = 10\nmapwrite = 10\npunch_hole = 4\n' >"$dir/fsx.toml"
    fsx -q -N 3000 -S "$RANDOM" -f "$dir/fsx.toml" -P "$dir" "$1" >"$dir/fsx.log" 2>&1 || tail -20 "$dir/fsx.log"
}

# Four shells that stay in a directory of the mount: each appends numbers to a file of its own and counts them.
with_tmux() {
    local n
    mkdir "$1"
    cat >"$dir/shell.sh" <<'END'
for n in $(seq 200); do
    echo "$n" >>"log-$1"
    [ "$(wc -l <"log-$1")" -eq "$n" ] || echo "$1: not $n lines" >>bad
done
mv "log-$1" "done-$1"
END
    tmux -S "$dir/tmux" -f /dev/null new-session -d -c "$1" sh "$dir/shell.sh" 1
    for n in 2 3 4; do
        tmux -S "$dir/tmux" new-window -d -c "$1" sh "$dir/shell.sh" "$n"
    done
    while tmux -S "$dir/tmux" has-session 2>/dev/null; do sleep 0.1; done
    cat "$1"/done-[1-4] | wc -l
    [ ! -e "$1/bad" ] || cat "$1/bad"
}

mkdir "$dir/project" "$dir/native"
programs='git, SQLite, cargo'
for name in fsx tmux; do
    if command -v "$name" >/dev/null; then programs+=", $name"; else say "left out: $name is not installed"; fi
done
"$program" start project --from "$dir/project" >/dev/null
expected=$(with_git "$dir/native/git")
strike &
striker=$!
# The last strike must not meet the stop.
trap 'rm "$going_on"; wait "$striker" || :; "$program" stop project >/dev/null' EXIT
for round in $(seq "${ROUNDS:-3}"); do
    found=$( (with_git "$mount/git-$round"))
    [ "$found" = "$expected" ] || { say "git: $found instead of $expected"; exit 1; }
    found=$( (with_sqlite "$mount/db-$round") | paste -sd' ')
    [ "$found" = 'ok 200|200' ] || { say "sqlite: $found"; exit 1; }
    found=$( (with_cargo "$mount/cargo-$round") | paste -sd' ')
    [ "$found" = 'Hello, world! 55 55' ] || { say "cargo: $found"; exit 1; }
    if [[ $programs = *fsx* ]]; then
        found=$(with_fsx "$mount/fsx-$round")
        [ -z "$found" ] || { say "fsx: $found"; exit 1; }
    fi
    if [[ $programs = *tmux* ]]; then
        found=$(with_tmux "$mount/tmux-$round")
        [ "$found" = 800 ] || { say "tmux: $found"; exit 1; }
    fi
    say "round $round: $programs noticed nothing of $(stat -c %s "$strikes") strikes"
done
