//! libFuzzer target of [`fuzz::pack`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::pack::check(bytes));
