#!/usr/bin/env bash
# Real programs in a mount whose daemon is killed again and again: git, SQLite and cargo must notice nothing.
#
#   tests/kept/programs.sh PROGRAM DIR      PROGRAM: an agentvfs; DIR: an empty directory for everything
#
# Settings: ROUNDS (3) of all programs; PAUSE (0.15), seconds between two kills.
set -euo pipefail

program=$(realpath "$1")
dir=$(realpath "$2")
export AGENTVFS_HOME=$dir/home AGENTVFS_KEEPER=1000000000
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'

say() { printf '%s\n' "$*"; }

kills=$dir/kills
: >"$kills"
strike() {
    while sleep "${PAUSE:-0.15}"; do
        pkill -KILL -f "^agentvfs daemon --root $AGENTVFS_HOME" && printf x >>"$kills"
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

mkdir "$dir/project" "$dir/native"
"$program" start project --from "$dir/project" >/dev/null
mount=$AGENTVFS_HOME/mnt/project
expected=$(with_git "$dir/native/git")
strike &
striker=$!
trap 'kill "$striker"; "$program" stop project >/dev/null' EXIT
for round in $(seq "${ROUNDS:-3}"); do
    found=$( (with_git "$mount/git-$round"))
    [ "$found" = "$expected" ] || { say "git: $found instead of $expected"; exit 1; }
    found=$( (with_sqlite "$mount/db-$round") | paste -sd' ')
    [ "$found" = 'ok 200|200' ] || { say "sqlite: $found"; exit 1; }
    found=$( (with_cargo "$mount/cargo-$round") | paste -sd' ')
    [ "$found" = 'Hello, world! 55 55' ] || { say "cargo: $found"; exit 1; }
    say "round $round: git, SQLite and cargo noticed nothing of $(stat -c %s "$kills") kills"
done
