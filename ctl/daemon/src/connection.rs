//! One client's connection: messages in, answers out, one after the other where the client wants no more.
//!
//! Invariant: whatever a client sends or leaves unsent costs at most its own connection: messages
//! are bounded in size and time, and answers that nobody reads time out.

use super::handles::Handles;
use super::in_flight;
use super::peer::{End, Lines, MESSAGE_TIMEOUT, Peer};
use super::served::{Daemon, May, SILENCE_TIMEOUT, Served, refuse, send, too_long};
use super::watch::listening;
use agentvfs_client::protocol::{
    Call, Fault, PROTOCOL_VERSION, Request, code, parse_cancel, parse_request,
};
use engine::Cancel;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a client may not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Most requests of one connection at once.
const IN_FLIGHT_MAX: u32 = 16;

/// Serves a connection until it ends.
pub fn serve(daemon: &Daemon, stream: &UnixStream) -> io::Result<()> {
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    let (mut lines, peer) = (Lines::new(stream), Peer::new(stream));
    let Some((hello, may, in_flight)) = greeting(&mut lines, &peer)? else {
        return Ok(());
    };
    let mut served = Served {
        daemon,
        peer: &peer,
        may,
        in_flight,
        handles: Handles::default(),
    };
    one(&served, &mut lines, &hello)?;
    match in_flight {
        1 => one_by_one(&mut served, &mut lines),
        _ => in_flight::serve(&served, &mut lines),
    }
}

/// Waits for the first message: gives it, what the connection may ask for, and how many requests at once.
fn greeting(lines: &mut Lines<'_>, peer: &Peer<'_>) -> io::Result<Option<(Request, May, u32)>> {
    loop {
        let line = match lines.next(MESSAGE_TIMEOUT) {
            Ok(line) => line,
            Err(End::TooLong) => return refuse(peer.stream(), too_long()).map(|()| None),
            Err(End::Gone | End::Silent) => return Ok(None),
        };
        match parse_request(&line) {
            Ok(request) => match check_hello(&request.call) {
                Ok((may, in_flight)) => return Ok(Some((request, may, in_flight))),
                Err(fault) => return send(peer, &request.id, &Err(fault)).map(|()| None),
            },
            Err(refusal) => send(peer, &refusal.id, &Err(refusal.fault))?,
        }
    }
}

/// Carries out requests one after the other.
fn one_by_one(served: &mut Served<'_>, lines: &mut Lines<'_>) -> io::Result<()> {
    loop {
        let request = match lines.next(SILENCE_TIMEOUT) {
            // What it is about was answered meanwhile.
            Ok(line) if parse_cancel(&line).is_some() => continue,
            Ok(line) => parse_request(&line),
            Err(End::TooLong) => return refuse(served.peer.stream(), too_long()),
            Err(End::Gone | End::Silent) => return Ok(()),
        };
        match request {
            Ok(request) => match served.narrow(&request.call) {
                Ok(()) => one(served, lines, &request)?,
                Err(fault) => send(served.peer, &request.id, &Err(fault))?,
            },
            Err(refusal) => served.refuse(refusal)?,
        }
    }
}

/// Carries out a request and answers it, and listens to the client meanwhile if it can be cancelled.
fn one(served: &Served<'_>, lines: &mut Lines<'_>, request: &Request) -> io::Result<()> {
    let cancel = Cancel::new();
    let work = || served.carry_out(request, &cancel);
    match request.call.can_be_cancelled() {
        true => {
            let of = (&request.id, request.call.is_endless());
            listening(lines, served.peer, of, &cancel, work)?
        }
        false => work(),
    }
}

fn check_hello(call: &Call) -> Result<(May, u32), Fault> {
    match call {
        Call::Hello(hello) if hello.protocol == PROTOCOL_VERSION => {
            let in_flight = hello.in_flight.unwrap_or(1).clamp(1, IN_FLIGHT_MAX);
            Ok((hello.sandbox.clone().map_or(May::All, May::In), in_flight))
        }
        Call::Hello(hello) => Err(Fault::protocol(
            code::VERSION,
            format!(
                "the daemon ({}) speaks protocol {PROTOCOL_VERSION}, the client {}",
                env!("CARGO_PKG_VERSION"),
                hello.protocol
            ),
        )),
        _ => Err(Fault::protocol(
            code::VERSION,
            "the first message must be hello",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_hello_opens_a_connection() {
        let asking = |protocol, in_flight| {
            Call::Hello(agentvfs_client::protocol::Hello {
                protocol,
                client: "t".into(),
                sandbox: None,
                in_flight,
            })
        };
        let hello = |protocol| asking(protocol, None);
        for (asked, given) in [(0, 1), (1, 1), (5, 5), (u32::MAX, IN_FLIGHT_MAX)] {
            let call = asking(PROTOCOL_VERSION, Some(asked));
            assert_eq!(check_hello(&call).unwrap().1, given);
        }
        assert_eq!(check_hello(&hello(PROTOCOL_VERSION)).unwrap().1, 1);
        assert_eq!(check_hello(&hello(99)).unwrap_err().code, code::VERSION);
        let other = Call::List(agentvfs_client::protocol::Nothing {});
        assert_eq!(check_hello(&other).unwrap_err().code, code::VERSION);
    }
}
