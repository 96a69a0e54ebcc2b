//! The system calls of attempts: the place with their `unsafe` code.

use std::io;

/// The number of ioctl(2) for programs with 32-bit pointers on x86-64; elsewhere none.
pub const X32_IOCTL: i64 = if cfg!(target_arch = "x86_64") {
    0x4000_0000 + 514
} else {
    -1
};

/// Calls that a sandbox denies; with zeros they do nothing even where they are allowed.
pub const DENIED: [(&str, i64); 8] = [
    ("keyctl", libc::SYS_keyctl),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("userfaultfd", libc::SYS_userfaultfd),
];

/// Makes a system call of numbers. For calls that read and write no memory of this process with these.
pub(super) fn numbers(call: i64, args: [i64; 5]) -> io::Result<()> {
    let [a, b, c, d, e] = args;
    // SAFETY: the callers pass numbers and null pointers alone, which the kernel checks.
    match unsafe { libc::syscall(call as libc::c_long, a, b, c, d, e) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Writes a byte into another process.
pub(super) fn write_memory(pid: i64) -> io::Result<()> {
    let mut byte = 0u8;
    let here = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let there = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(0x1000),
        iov_len: 1,
    };
    // SAFETY: the local vector names a byte that outlives the call; the other is an address of another process.
    match unsafe { libc::process_vm_writev(pid as libc::pid_t, &here, 1, &there, 1, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
