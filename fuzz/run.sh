#!/usr/bin/env bash
# Builds the fuzz targets with a stable toolchain and runs each for some seconds.
#
#   fuzz/run.sh [SECONDS [TARGET...]]     default: 10 seconds of every target
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

# A target triple of its own keeps build scripts and macros free of the instrumentation.
triple=$(rustc -vV | sed -n 's/^host: //p')
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/fuzz
bins=()
for target in "${targets[@]}"; do
    bins+=(--bin "$target")
done
cargo build --locked -p fuzz --features libfuzzer --target "$triple" "${bins[@]}"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for target in "${targets[@]}"; do
    mkdir -p "$scratch/$target" "fuzz/artifacts/$target"
    echo "fuzz: $target for $seconds s"
    log=$scratch/$target.log
    if ! "$CARGO_TARGET_DIR/$triple/debug/$target" -max_total_time="$seconds" -max_len=65536 \
        -timeout=10 -rss_limit_mb=2048 -artifact_prefix="fuzz/artifacts/$target/" \
        "$scratch/$target" "fuzz/corpus/$target" >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "fuzz: $target found something, see fuzz/artifacts/$target" >&2
        exit 1
    fi
    tail -n 1 "$log"
done
