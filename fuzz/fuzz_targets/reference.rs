//! libFuzzer target of [`fuzz::reference`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::reference::check(bytes));
