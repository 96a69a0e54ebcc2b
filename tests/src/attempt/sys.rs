//! The system calls of attempts: the place with their `unsafe` code.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The number of ioctl(2) for programs with 32-bit pointers on x86-64; elsewhere none.
pub const X32_IOCTL: i64 = if cfg!(target_arch = "x86_64") {
    0x4000_0000 + 514
} else {
    -1
};

/// Calls that a sandbox denies; with zeros they do nothing even where they are allowed.
pub const DENIED: [(&str, i64); 11] = [
    ("keyctl", libc::SYS_keyctl),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
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

/// A file's number as `name_to_handle_at(2)` has it: type and bytes.
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

/// The number of a file, in hexadecimal digits.
pub fn handle_of(path: &Path) -> io::Result<String> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let mut handle = Handle {
        bytes: 128,
        kind: 0,
        data: [0; 128],
    };
    let mut mount = 0i32;
    // SAFETY: the path ends with a null; handle has as many bytes as it says, and both are valid for writes.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw mut handle,
            &raw mut mount,
            0,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let count = handle.bytes as usize;
    let mut text = format!("{:08x}", handle.kind);
    let data = handle.data.iter().take(count);
    data.for_each(|byte| text.push_str(&format!("{byte:02x}")));
    Ok(text)
}

/// Opens a file by its number, in the file system of `dir`.
pub fn open_handle(dir: &File, digits: &str) -> io::Result<()> {
    let number = |from: usize, to: usize| {
        let part = digits.get(from..to);
        part.and_then(|part| u32::from_str_radix(part, 16).ok())
            .ok_or(io::ErrorKind::InvalidInput)
    };
    let mut handle = Handle {
        bytes: (digits.len().saturating_sub(8) / 2) as u32,
        kind: number(0, 8)? as i32,
        data: [0; 128],
    };
    for at in 0..handle.bytes as usize {
        let byte = handle.data.get_mut(at).ok_or(io::ErrorKind::InvalidInput)?;
        *byte = number(8 + 2 * at, 10 + 2 * at)? as u8;
    }
    // SAFETY: handle has as many bytes as it says and outlives the call.
    let opened = unsafe {
        libc::syscall(
            libc::SYS_open_by_handle_at,
            dir.as_raw_fd(),
            &raw mut handle,
            libc::O_RDONLY | libc::O_CLOEXEC,
        )
    };
    match opened {
        -1 => Err(io::Error::last_os_error()),
        fd => {
            // SAFETY: the descriptor is new and nobody else's.
            drop(unsafe { OwnedFd::from_raw_fd(fd as i32) });
            Ok(())
        }
    }
}
