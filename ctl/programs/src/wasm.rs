//! Programs of WebAssembly, interpreted with fuel.
//!
//! `on_event` gets the operation's number and gives the verdict's. ContextFS numbers ten operations; those that it does not have
//! follow from [`FIRST_OWN`] on.

use crate::limits::*;
use crate::{Answer, ProgramError, ProgramEvent, Verdict, one_line};
use wasmi::{
    Config, EnforcedLimits, Engine, Instance, Linker, Module, Store, StoreLimits,
    StoreLimitsBuilder, TrapCode, TypedFunc,
};

/// ContextFS's operations, by their numbers.
const THEIRS: [&str; 10] = [
    "read", "write", "open", "close", "unlink", "rename", "truncate", "stat", "exec", "create",
];

/// Number of the first operation that ContextFS does not have.
const FIRST_OWN: usize = 100;

/// Those, by their numbers.
const OWN: [&str; 6] = ["link", "symlink", "setattr", "setxattr", "rmdir", "kv"];

/// Number of what is none of these.
const OTHER: i32 = 99;

/// Magic number and version.
const HEAD_BYTES: usize = 8;
/// Number of the section with the bodies of functions.
const CODE_SECTION: u8 = 10;
/// Bytes of a number of 32 bits, at most.
const U32_BYTES_MAX: usize = 5;

pub(crate) struct WasmProgram {
    module: Module,
    running: Option<Running>,
}

struct Running {
    store: Store<StoreLimits>,
    on_event: TypedFunc<i32, i32>,
}

impl WasmProgram {
    pub(crate) fn load(bytes: &[u8]) -> Result<WasmProgram, ProgramError> {
        let mut config = Config::default();
        config
            .consume_fuel(true)
            .enforced_limits(EnforcedLimits::strict())
            .set_max_recursion_depth(WASM_CALLS_MAX)
            .set_max_stack_height(WASM_STACK_BYTES_MAX)
            .wasm_multi_memory(false);
        let engine = Engine::new(&config);
        if has_code_without_functions(bytes) {
            let why = "its code section has no functions and is not empty";
            return Err(ProgramError::Invalid(why.into()));
        }
        let module = Module::new(&engine, bytes)
            .map_err(|e| ProgramError::Invalid(one_line(&e.to_string())))?;
        let running = Some(Running::begin(&module)?);
        Ok(WasmProgram { module, running })
    }

    pub(crate) fn judge(&mut self, event: &ProgramEvent<'_>) -> Result<Answer, ProgramError> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::begin(&self.module)?,
        };
        let verdict = running.ask(number(event.op))?;
        // One that failed is not kept.
        self.running = Some(running);
        let extra = Vec::new();
        Ok(Answer { verdict, extra })
    }
}

impl Running {
    fn begin(module: &Module) -> Result<Running, ProgramError> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(WASM_BYTES_MAX)
            .table_elements(WASM_TABLE_MAX)
            .instances(1)
            .memories(1)
            .tables(4)
            .build();
        let mut store = Store::new(module.engine(), limits);
        store.limiter(|limits| limits);
        set_fuel(&mut store, WASM_BEGIN_FUEL)?;
        let instance = instance(module, &mut store)?;
        let on_event = instance
            .get_typed_func::<i32, i32>(&store, "on_event")
            .map_err(|e| ProgramError::NoEntry(one_line(&e.to_string())))?;
        Ok(Running { store, on_event })
    }

    fn ask(&mut self, op: i32) -> Result<Verdict, ProgramError> {
        set_fuel(&mut self.store, WASM_FUEL)?;
        let answer = self.on_event.call(&mut self.store, op).map_err(failed)?;
        let found = usize::try_from(answer)
            .ok()
            .and_then(|n| Verdict::ALL.get(n));
        found
            .copied()
            .ok_or_else(|| ProgramError::NoVerdict(answer.to_string()))
    }
}

/// Whether a module has a code section (number 10) that says it has no functions, and bytes all the same. It is no valid one, and
/// wasmi 2.0.0, with limits, divides by that number before it says so. WebAssembly specification, 5.5.2: sections.
fn has_code_without_functions(bytes: &[u8]) -> bool {
    let mut rest = bytes.get(HEAD_BYTES..).unwrap_or_default();
    while let Some((&number, after)) = rest.split_first() {
        let Some((len, content)) = unsigned(after) else {
            return false;
        };
        if number == CODE_SECTION
            && unsigned(content).is_some_and(|(n, _)| n == 0)
            && len > U32_BYTES_MAX
        {
            return true;
        }
        rest = content.get(len..).unwrap_or_default();
    }
    false
}

/// The number at the beginning of bytes, and what follows it (5.2.2, LEB128); `None` where there is none of 32 bits.
fn unsigned(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(U32_BYTES_MAX) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(at + 1..)?));
        }
    }
    None
}

/// Begins a module, which gets nothing to import.
fn instance(module: &Module, store: &mut Store<StoreLimits>) -> Result<Instance, ProgramError> {
    if let Some(import) = module.imports().next() {
        let (from, name) = (import.module(), import.name());
        let why = format!("it imports {from}.{name}, and a program gets nothing from outside");
        return Err(ProgramError::Invalid(one_line(&why)));
    }
    let linker = Linker::new(module.engine());
    linker.instantiate_and_start(store, module).map_err(failed)
}

fn set_fuel(store: &mut Store<StoreLimits>, fuel: u64) -> Result<(), ProgramError> {
    store.set_fuel(fuel).map_err(failed)
}

fn failed(error: wasmi::Error) -> ProgramError {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => ProgramError::TooSlow,
        _ => ProgramError::Failed(one_line(&error.to_string())),
    }
}

/// Number of an operation.
fn number(op: &str) -> i32 {
    let place = |all: &[&str], first: usize| {
        let at = all.iter().position(|word| *word == op)?;
        i32::try_from(first + at).ok()
    };
    place(&THEIRS, 0)
        .or_else(|| place(&OWN, FIRST_OWN))
        .unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_contextfs_numbers() {
        let all = ["read", "write", "create", "link", "kv", "checkpoint"].map(number);
        assert_eq!(all, [0, 1, 9, 100, 105, OTHER]);
    }
}
