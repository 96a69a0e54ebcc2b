//! Programs of policies: the first byte says in which language the rest is.

use agentvfs_programs::{Program, ProgramEvent};

/// Any bytes are a program or an error of one line, and a program judges, or fails, within its limits.
pub fn check(bytes: &[u8]) {
    let Some((kind, program)) = bytes.split_first() else {
        return;
    };
    let loaded = match kind % 2 {
        0 => Program::lua(program),
        _ => Program::wasm(program),
    };
    let event = ProgramEvent {
        op: "write",
        path: bytes,
        backend: "fuse",
        extra: &[("comm", b"sh")],
        ..ProgramEvent::default()
    };
    let judged = loaded.and_then(|mut program| {
        let first = program.judge(&event);
        program.judge(&event).and(first)
    });
    if let Err(error) = judged {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
}

/// Programs that judge, and some that must be cut.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let lua = [
        "function on_event(ev) if ev.path:match('^a/') then return { verdict = 'deny' } end end",
        "local n = 0 function on_event(ev) n = n + 1 return { verdict = 'soft_watch', extra = { n = n } } end",
        "while true do end",
        "function on_event(ev) return { verdict = ('x'):rep(1e9) } end",
        "function on_event(ev) local t = {[1]=1,[2]=1,[4]=1,[8]=1} table.insert(t, 1, 1) table.remove(t, 1) end",
        "function on_event(ev) return { verdict = ev.path:match('^(a?)%1[^]*-]-%-?') } end",
    ];
    let mut seeds: Vec<Vec<u8>> = lua
        .iter()
        .map(|text| [b"\0", text.as_bytes()].concat())
        .collect();
    seeds.extend([module(), code_without_functions()].map(|module| [vec![1], module].concat()));
    seeds
}

/// A module that judges.
fn module() -> Vec<u8> {
    let parts = [
        &b"\0asm\x01\0\0\0"[..],
        b"\x01\x06\x01\x60\x01\x7f\x01\x7f",
        b"\x03\x02\x01\0",
        b"\x07\x0c\x01\x08on_event\0\0",
        b"\x0a\x06\x01\x04\0\x20\0\x0b",
    ];
    parts.concat()
}

/// A module whose code section has 1,024 bytes, of which the first says that there are no functions: wasmi 2.0.0 divides by
/// their number.
fn code_without_functions() -> Vec<u8> {
    [&b"\0asm\x01\0\0\0\x0a\x80\x08\0"[..], &[0; 1023]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_modules_among_the_seeds_one_judges_and_one_is_refused() {
        let refused = Program::wasm(&code_without_functions()).unwrap_err();
        assert!(refused.to_string().contains("code section"), "{refused}");
        let mut program = Program::wasm(&module()).unwrap();
        let event = ProgramEvent {
            op: "write",
            ..ProgramEvent::default()
        };
        assert!(program.judge(&event).is_ok());
    }
}
