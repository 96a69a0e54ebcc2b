#!/usr/bin/env bash
# Builds the fuzz targets with a stable toolchain and runs each for some seconds.
#
#   fuzz/run.sh [SECONDS [TARGET...]]     default: 10 seconds of every target
#   fuzz/run.sh build [TARGET...]         builds them and runs none
#
# cargo-fuzz works too (cd fuzz && cargo fuzz run --features libfuzzer TARGET), but needs a nightly
# toolchain and minutes to build; the coverage instrumentation itself is there on stable. What is
# found is left in fuzz/artifacts/TARGET; new inputs stay out of the committed corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-10}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for file in fuzz/fuzz_targets/*.rs; do
        targets+=("$(basename "$file" .rs)")
    done
fi

# Only the workspace's own crates are instrumented, so that the others (SQLite among them) are those that the
# tests have built already. The features are the tests' for the same reason: --workspace.
export RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/instrumented.sh
built=${CARGO_TARGET_DIR:-target}/debug
bins=()
for target in "${targets[@]}"; do
    bins+=(--bin "$target")
done
cargo build --locked --workspace --features fuzz/libfuzzer "${bins[@]}"
[ "$seconds" != build ] || exit 0

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for target in "${targets[@]}"; do
    mkdir -p "$scratch/$target" "fuzz/artifacts/$target"
    echo "fuzz: $target for $seconds s"
    log=$scratch/$target.log
    if ! "$built/$target" -max_total_time="$seconds" -max_len=65536 \
        -timeout=10 -rss_limit_mb=2048 -artifact_prefix="fuzz/artifacts/$target/" \
        "$scratch/$target" "fuzz/corpus/$target" >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "fuzz: $target found something, see fuzz/artifacts/$target" >&2
        exit 1
    fi
    tail -n 1 "$log"
done
