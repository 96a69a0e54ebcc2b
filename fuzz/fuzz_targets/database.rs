//! libFuzzer target of [`fuzz::database`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::database::check(bytes));
