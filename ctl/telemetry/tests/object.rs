//! The compiled programs are what their source says: compiled again where clang is, they are the same.
#![allow(clippy::unwrap_used)]

use aya_obj::Object;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The version of clang by which the object in the repository was made: another one makes other code of the same source.
const MADE_BY: &str = "version 14.";

/// What of an object counts: programs by section and place, and maps. Not what is for debuggers.
#[derive(Debug, PartialEq)]
struct Parts {
    programs: Vec<String>,
    code: BTreeMap<String, Vec<String>>,
    maps: BTreeMap<String, [u32; 4]>,
}

fn parts(file: &Path) -> Parts {
    let object = Object::parse(&std::fs::read(file).unwrap()).unwrap();
    let mut programs: Vec<String> = object
        .programs
        .iter()
        .map(|(name, program)| format!("{name} {:?}", program.section))
        .collect();
    programs.sort();
    let code = object.functions.values().map(|function| {
        let all = function.instructions.iter();
        (
            function.name.clone(),
            all.map(|i| format!("{i:?}")).collect(),
        )
    });
    let maps = object.maps.iter().map(|(name, map)| {
        let sizes = [
            map.map_type(),
            map.key_size(),
            map.value_size(),
            map.max_entries(),
        ];
        (name.clone(), sizes)
    });
    Parts {
        programs,
        code: code.collect(),
        maps: maps.collect(),
    }
}

fn version_of_clang() -> Option<String> {
    let told = Command::new("clang").arg("--version").output().ok()?;
    let has_strip = Command::new("llvm-strip").arg("--version").output().is_ok();
    has_strip.then(|| String::from_utf8_lossy(&told.stdout).into_owned())
}

#[test]
fn the_object_is_what_its_source_compiles_to() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf");
    let ours = parts(&bpf.join("runs.bpf.o"));
    assert_eq!(ours.programs.len(), 4, "{:?}", ours.programs);
    assert!(ours.maps.contains_key("procs") && ours.code.len() >= 4);
    let Some(version) = version_of_clang() else {
        return println!("skipped: no clang and llvm-strip here");
    };
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("again.o");
    let built = Command::new(bpf.join("build.sh")).arg(&out).status();
    assert!(built.unwrap().success());
    let again = parts(&out);
    assert_eq!((&again.programs, &again.maps), (&ours.programs, &ours.maps));
    if version.contains(MADE_BY) {
        assert_eq!(again.code, ours.code);
    } else {
        println!("skipped: other code is made by {version}");
    }
}
