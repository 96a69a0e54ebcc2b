//! libFuzzer target of [`fuzz::record`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::record::check(bytes));
