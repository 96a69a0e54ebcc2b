//! libFuzzer target of [`fuzz::acl`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::acl::check(bytes));
