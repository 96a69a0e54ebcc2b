//! Random edits of texts.

use super::rng::Rng;

/// Lines with their ends.
pub fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect()
}

/// A text with a few random edits.
pub fn edited(rng: &mut Rng, text: &[u8], edits: u64) -> Vec<u8> {
    let mut all = lines(text);
    for _ in 0..edits {
        edit(rng, &mut all);
    }
    let mut text = all.concat();
    if rng.below(60) == 0 && text.last() == Some(&b'\n') {
        text.pop();
    }
    text
}

fn edit(rng: &mut Rng, all: &mut Vec<Vec<u8>>) {
    let at = rng.below(all.len() as u64 + 1) as usize;
    let some = (rng.below(4) + 1) as usize;
    let end = (at + some).min(all.len());
    match rng.below(8) {
        0 => drop(all.drain(at..end)),
        1 => {
            let new = (0..some).map(|_| new_line(rng)).collect::<Vec<_>>();
            all.splice(at..at, new);
        }
        2 | 3 => {
            let new = (at..end).map(|_| new_line(rng)).collect::<Vec<_>>();
            all.splice(at..end, new);
        }
        4 => {
            // Words of a line.
            if let Some(line) = all.get_mut(at) {
                let place = rng.below(line.len() as u64) as usize;
                line.insert(place, b'a' + rng.below(3) as u8);
            }
        }
        5 => {
            // A block moves.
            let block: Vec<_> = all.drain(at..end).collect();
            let to = rng.below(all.len() as u64 + 1) as usize;
            all.splice(to..to, block);
        }
        6 => {
            // A block is there twice.
            let block = all[at..end].to_vec();
            all.splice(at..at, block);
        }
        _ => {
            let line: &[u8] = [&b"}\n"[..], b"\n", b"    }\n"][rng.below(3) as usize];
            all.insert(at, line.to_vec());
        }
    }
}

fn new_line(rng: &mut Rng) -> Vec<u8> {
    format!("line {}\n", rng.below(12)).into_bytes()
}

/// A short text of few different lines: what makes line differences hard.
pub fn monotonous(rng: &mut Rng) -> Vec<u8> {
    let count = rng.below(25);
    let kinds = 1 + rng.below(6);
    let mut text = Vec::new();
    for _ in 0..count {
        text.extend(format!("{}\n", rng.below(kinds)).bytes());
    }
    text
}

/// A part of a real text.
pub fn excerpt(rng: &mut Rng, texts: &[Vec<u8>]) -> Vec<u8> {
    let text = &texts[rng.below(texts.len() as u64) as usize];
    let all = lines(text);
    let from = rng.below(all.len() as u64) as usize;
    let len = 1 + rng.below(200) as usize;
    let mut part: Vec<Vec<u8>> = all[from..(from + len).min(all.len())].to_vec();
    if rng.below(12) == 0 {
        for line in part.iter_mut().filter(|line| line.ends_with(b"\n")) {
            line.pop();
            line.extend(b"\r\n");
        }
    }
    part.concat()
}
