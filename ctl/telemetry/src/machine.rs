//! Where this machine's system calls have their numbers and arguments.

/// What programs must know of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Number of connect(2).
    pub connect: u32,
    /// Numbers of the system calls that open a file; one that there is not is [`u32::MAX`].
    pub opens: [u32; 4],
    /// Where `struct pt_regs` has the call's number.
    pub number_at: u32,
    /// Where it has the second and the third argument.
    pub arguments_at: [u32; 2],
}

/// That of this machine, if it is known.
#[cfg(all(target_arch = "x86_64", target_pointer_width = "64"))]
pub const THIS: Option<Machine> = Some(Machine {
    connect: 42,
    // open, creat, openat, openat2.
    opens: [2, 85, 257, 437],
    // orig_ax, si and dx in arch/x86/include/asm/ptrace.h.
    number_at: 120,
    arguments_at: [104, 96],
});

/// That of this machine, if it is known.
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
pub const THIS: Option<Machine> = Some(Machine {
    connect: 203,
    // openat, openat2.
    opens: [56, 437, u32::MAX, u32::MAX],
    // syscallno, regs[1] and regs[2] in arch/arm64/include/asm/ptrace.h.
    number_at: 280,
    arguments_at: [8, 16],
});

/// That of this machine, if it is known.
#[cfg(not(any(
    all(target_arch = "x86_64", target_pointer_width = "64"),
    all(target_arch = "aarch64", target_endian = "little")
)))]
pub const THIS: Option<Machine> = None;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_of_calls_that_differ() {
        let Some(machine) = THIS else { return };
        let mut all = machine.opens.to_vec();
        all.push(machine.connect);
        all.retain(|number| *number != u32::MAX);
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
