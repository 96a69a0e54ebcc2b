//! libFuzzer target of [`fuzz::policy`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::policy::check(bytes));
