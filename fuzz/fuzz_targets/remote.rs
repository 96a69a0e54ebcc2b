//! libFuzzer target of [`fuzz::remote`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::remote::check(bytes));
