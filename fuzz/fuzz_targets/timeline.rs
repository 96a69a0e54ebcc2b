//! libFuzzer target of [`fuzz::timeline`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::timeline::check(bytes));
