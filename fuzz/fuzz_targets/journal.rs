//! libFuzzer target of [`fuzz::journal`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::journal::check(bytes));
