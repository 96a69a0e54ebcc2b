//! The stored log of a timeline.

use engine::record::{
    CallOutcome, EndedBy, Event, Owner, Process, StateRef, SwitchWord, What, encode,
};
use engine::{Time, check_log_bytes};
use objstore::{CommitId, FileContent};

const NOW: Time = Time { sec: 5, nsec: 6 };

/// A log is read from both ends, to the same entries, or refused.
pub fn check(bytes: &[u8]) {
    check_log_bytes(bytes);
    check_log_bytes(&sealed(bytes));
}

/// Frames whose second lengths are right, after `docs/format.md`.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut b = bytes.to_vec();
    let mut at = 0;
    while let Some(len) = b
        .get(at..)
        .and_then(|rest| rest.first_chunk::<4>())
        .copied()
    {
        let Some(end) = (u32::from_le_bytes(len) as usize).checked_add(at + 36) else {
            break;
        };
        if let Some(place) = b.get_mut(end..end.saturating_add(4)) {
            place.copy_from_slice(&len);
        }
        at = end.saturating_add(4);
    }
    b
}

fn state(number: u64, known: bool) -> StateRef {
    StateRef {
        state: number,
        commit: known.then(|| CommitId::from_bytes([7; 32])),
    }
}

/// One of each kind.
pub(crate) fn whats() -> Vec<What> {
    [own(), taken_over()].concat()
}

fn taken_over() -> Vec<What> {
    vec![
        What::Elsewhere {
            timeline: 1,
            branch: "b".into(),
            deleted: Some(NOW),
        },
        What::Imported {
            timeline: Some(1),
            call: 2,
            name: "edit".into(),
            parameters: Some("{}".into()),
            outcome: Some(CallOutcome::Success(None)),
            started: NOW,
            completed: Some(NOW),
            parent: Some(1),
            overlaps: vec![3],
        },
    ]
}

fn own() -> Vec<What> {
    vec![
        What::Started {
            call: 1,
            name: "edit".into(),
            parameters: Some("{}".into()),
            before: state(1, true),
        },
        What::Ended {
            call: 1,
            outcome: CallOutcome::Success(Some("true".into())),
            after: state(2, false),
            overlaps: vec![2],
            switches: vec![4],
        },
        What::Recorded {
            call: 2,
            name: "look".into(),
            parameters: None,
            outcome: Some(CallOutcome::Error("no".into())),
            started: NOW,
            completed: Some(NOW),
            before: None,
            after: Some(state(2, true)),
            overlaps: vec![],
        },
        What::Switched {
            by: SwitchWord::ToolUndo,
            call: Some(1),
            before: state(3, false),
            after: Some(state(4, false)),
        },
        What::Named {
            state: 2,
            commit: CommitId::from_bytes([7; 32]),
        },
        What::Same {
            state: 3,
            kept: state(2, true),
        },
        What::Begun {
            call: 3,
            name: "run".into(),
            parameters: None,
            before: state(4, false),
            owner: owner(),
            apart: vec![2],
        },
        What::Over {
            call: 3,
            outcome: CallOutcome::Error("its process died".into()),
            after: state(5, true),
            parent: Some(1),
            overlaps: vec![2],
            switches: vec![],
            by: EndedBy::Died,
        },
        What::Others {
            call: 3,
            paths: vec![b"/key".to_vec(), b"dir/".to_vec(), b"file".to_vec()],
            doubt: None,
        },
        What::Others {
            call: 3,
            paths: vec![],
            doubt: Some("it is not known which call changed file".into()),
        },
    ]
}

fn owner() -> Owner {
    Owner::Process(Process {
        pid: 7,
        started: 8,
        boot: 9,
    })
}

/// The events of the journal.
pub(crate) fn events() -> Vec<Event> {
    let of_calls = |what: &What| {
        let follows = matches!(
            what,
            What::Switched { .. } | What::Named { .. } | What::Same { .. }
        );
        !follows
    };
    let whats = whats().into_iter().filter(of_calls);
    let mut events: Vec<Event> = whats
        .map(|what| Event::Timeline { time: NOW, what })
        .collect();
    events.push(Event::TimelineStored {
        stored: FileContent::Empty,
        bytes: 7,
    });
    events.push(Event::Headed {
        state: 2,
        entries: 3,
        hash: [9; 32],
    });
    events.push(Event::CallUndone {
        call: 1,
        replaced: 2,
        after: 3,
        counters: crate::seeds::counters(),
    });
    events.push(Event::Timeline {
        time: NOW,
        what: keyed(),
    });
    events
}

/// A call begins that is ended by a key.
fn keyed() -> What {
    What::Begun {
        call: 4,
        name: "Bash".into(),
        parameters: None,
        before: state(5, true),
        owner: Owner::Key("claude:session:tool".into()),
        apart: vec![],
    }
}

/// A log with an entry of each kind.
pub(crate) fn log() -> Vec<u8> {
    let (mut log, mut hash) = (Vec::new(), [0; 32]);
    for (i, what) in whats().into_iter().enumerate() {
        let entry = encode(&(i as u64 + 1, NOW, what));
        let mut hasher = blake3::Hasher::new();
        hash = *hasher.update(&hash).update(&entry).finalize().as_bytes();
        let len = (entry.len() as u32).to_le_bytes();
        log.extend_from_slice(&len);
        log.extend_from_slice(&entry);
        log.extend_from_slice(&hash);
        log.extend_from_slice(&len);
    }
    log
}

/// The timeline's frame in a state file, with one call that runs and one that ended.
pub(crate) fn frame() -> Vec<u8> {
    let running = (NOW, vec![1u64], vec![4u64]);
    framed(vec![(3u64, (running, owner(), vec![2u64]))])
}

/// The same in the first version that has one.
pub(crate) fn first_frame() -> Vec<u8> {
    framed(vec![(3u64, (NOW, vec![1u64], vec![4u64]))])
}

fn framed<R: bincode::Encode + 'static>(running: Vec<(u64, R)>) -> Vec<u8> {
    let recent = vec![(1u64, NOW, NOW)];
    let states = (Some(2u64), vec![4u64], vec![1u64, 2]);
    encode(&(
        (FileContent::Empty, log(), 8u64, [3u8; 32]),
        (4u64, running, recent),
        states,
    ))
}
