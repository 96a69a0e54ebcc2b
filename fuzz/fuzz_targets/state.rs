//! libFuzzer target of [`fuzz::state`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::state::check(bytes));
