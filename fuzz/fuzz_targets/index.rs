//! libFuzzer target of [`fuzz::index`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::index::check(bytes));
