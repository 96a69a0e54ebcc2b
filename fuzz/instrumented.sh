#!/bin/sh
# rustc for the crates of the workspace (RUSTC_WORKSPACE_WRAPPER), with what libFuzzer needs to see which way
# they go.
exec "$@" -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
