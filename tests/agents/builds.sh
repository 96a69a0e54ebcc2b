#!/usr/bin/env bash
# A cargo build and an npm install in `agentvfs run`, at the project's own path: the project is the same before and
# after, and what was built is in it once it is applied. Part of `.ci/long builds`.
#
#   tests/agents/builds.sh AGENTVFS DIR     DIR is empty and visible in a sandbox
#
# What cargo and npm have cached in the home directory of the user is used, through the session's copy of it.
set -euo pipefail
agentvfs=$1 dir=$2
export AGENTVFS_HOME="$dir/store"

fail() { printf 'builds: %s\n' "$1" >&2; exit 1; }

# hash: of names, modes, links and contents of the project.
hash() {
    (cd "$dir/project" && find . -printf '%P %m %l\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum) |
        sha256sum
}

make_project() {
    mkdir -p "$dir/project/src"
    cat >"$dir/project/Cargo.toml" <<'END'
[package]
name = "built"
version = "0.1.0"
edition = "2021"

[dependencies]
serde = { version = "=1.0.229", features = ["derive"] }
serde_json = "=1.0.154"

[workspace]
END
    cat >"$dir/project/src/main.rs" <<'END'
//! Prints what serde makes of a value.
#[derive(serde::Serialize)]
struct Built {
    by: &'static str,
}

fn main() {
    println!("{}", serde_json::to_string(&Built { by: "cargo" }).unwrap());
}
END
    printf '{"name": "built", "version": "0.1.0", "private": true}\n' >"$dir/project/package.json"
}

# timed NAME COMMAND...: prints how long it took.
timed() {
    local since=${EPOCHREALTIME/./} name=$1
    shift
    "$@"
    printf '%s %d ms\n' "$name" $(((${EPOCHREALTIME/./} - since) / 1000))
}

build() {
    export CARGO_TARGET_DIR=target
    timed "cargo build:" "$@" cargo build --quiet
    timed "npm install:" "$@" npm install --no-fund --no-audit --silent express@4.21.2
}

use() {
    [ "$(target/debug/built)" = '{"by":"cargo"}' ] || fail "the program does not run"
    node -e 'require("express")()' || fail "the package cannot be loaded"
}

make_project
cp -a "$dir/project" "$dir/plain"
cd "$dir/plain"
printf 'plain\n'
build
cd "$dir/project"
before=$(hash)
"$agentvfs" workspace start --from . >/dev/null
trap '"$agentvfs" workspace stop project >/dev/null 2>&1' EXIT
printf 'in a sandbox\n'
build "$agentvfs" run --quiet --session build --
[ "$before" = "$(hash)" ] || fail "the project was changed"
printf 'applied: %d changes\n' "$("$agentvfs" workspace apply -w project --branch build | wc -l)"
use
[ "$(cd "$dir/plain" && find node_modules | wc -l)" = "$(find node_modules | wc -l)" ] || fail "files are missing"
