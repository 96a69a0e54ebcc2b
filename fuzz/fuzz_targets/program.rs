//! libFuzzer target of [`fuzz::program`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::program::check(bytes));
