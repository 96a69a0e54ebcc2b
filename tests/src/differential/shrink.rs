//! Leaving out of a list of calls what a difference does not need.

use super::Step;

/// Lists that are tried at most.
const TRIES_MAX: usize = 600;

/// A short list of which `fails` is still true; `steps` itself, for which it must be, in the worst
/// case. Longer and shorter runs of calls are left out in turn (Zeller's ddmin).
pub fn shrunk(steps: &[Step], mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut steps = steps.to_vec();
    let mut run = steps.len() / 2;
    let mut tries = 0;
    while run > 0 {
        let mut at = 0;
        let mut has_shrunk = false;
        while at < steps.len() && tries < TRIES_MAX {
            let end = (at + run).min(steps.len());
            let shorter = [&steps[..at], &steps[end..]].concat();
            tries += 1;
            if fails(&shorter) {
                steps = shorter;
                has_shrunk = true;
            } else {
                at = end;
            }
        }
        run = match has_shrunk && run == 1 {
            true => 1,
            false => run / 2,
        };
        if tries >= TRIES_MAX {
            break;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::{Op, steps};
    use super::*;

    #[test]
    fn what_a_failure_needs_is_what_is_left() {
        let all = steps(1, 200, false);
        let needed = [all[17].clone(), all[120].clone()];
        let fails = |steps: &[Step]| needed.iter().all(|step| steps.contains(step));
        assert_eq!(shrunk(&all, fails), needed);
    }

    #[test]
    fn nothing_is_left_of_what_always_fails() {
        let close = Step {
            user: 0,
            op: Op::Close(0),
        };
        assert!(shrunk(&[close.clone(), close], |_| true).is_empty());
    }
}
