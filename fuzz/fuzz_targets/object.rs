//! libFuzzer target of [`fuzz::object`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::object::check(bytes));
