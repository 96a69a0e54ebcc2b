//! libFuzzer target of [`fuzz::wire`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::wire::check(bytes));
