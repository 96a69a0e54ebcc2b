//! libFuzzer target of [`fuzz::deed`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::deed::check(bytes));
