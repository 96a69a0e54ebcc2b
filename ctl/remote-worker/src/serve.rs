//! Answering the daemon's requests, several at a time.
//!
//! A thread reads requests, one answers, and one writes answers, so that a large object on its way holds nothing up. They end
//! with the socket. What comes after it are at most so many requests as the daemon has threads that wait.

use crate::s3::S3;
use remote::bucket::wire::{self, Answer, Ask, Request, Said};
use remote::bucket::worker::{BYTES_PER_SECOND_MIN, SILENCE};
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::LocalSet;

/// The process gives up so long before the daemon does.
const SOONER: Duration = Duration::from_secs(10);

/// An answer and the bytes that follow.
type Outgoing = (Answer, Vec<u8>);

/// Serves requests until the other side of the socket is closed.
///
/// # Errors
/// What the system says of the socket, or a request that is none.
pub fn serve(socket: UnixStream) -> io::Result<()> {
    // Only this process uses it, and only once.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (asked, asking) = unbounded_channel();
    let (answers, answered) = mpsc::channel::<Outgoing>();
    let mut writing = socket.try_clone()?;
    let writer = move || {
        for (answer, bytes) in answered {
            if wire::write_frame(&mut writing, &answer, &bytes).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("answers".into())
        .spawn(writer)?;
    let reader = std::thread::Builder::new()
        .name("requests".into())
        .spawn(move || read(socket, |request| asked.send(request).is_ok()))?;
    LocalSet::new().block_on(&runtime, answer_all(asking, answers));
    match reader.join() {
        Ok(read) => read,
        Err(_) => Err(io::Error::other("the reader of requests failed")),
    }
}

fn read(
    mut socket: UnixStream,
    mut each: impl FnMut(wire::Frame<Request>) -> bool,
) -> io::Result<()> {
    while let Some(request) = wire::read_frame(&mut socket)? {
        if !each(request) {
            break;
        }
    }
    Ok(())
}

async fn answer_all(
    mut asking: UnboundedReceiver<wire::Frame<Request>>,
    answers: mpsc::Sender<Outgoing>,
) {
    let mut bucket: Option<Rc<S3>> = None;
    while let Some((Request { id, ask }, bytes)) = asking.recv().await {
        let answers = answers.clone();
        let send = move |(said, bytes)| {
            // Where nobody reads any more, the reader ends as well.
            let _ = answers.send((Answer { id, said }, bytes));
        };
        match (ask, &bucket) {
            (Ask::Open { url, access }, _) => {
                let opened = S3::open(&url, &access);
                send(match opened {
                    Ok(opened) => {
                        bucket = Some(Rc::new(opened));
                        (Said::Done, Vec::new())
                    }
                    Err(why) => (Said::Unsupported(why), Vec::new()),
                });
            }
            (_, None) => send((Said::Unsupported("no bucket was opened".into()), Vec::new())),
            (ask, Some(bucket)) => {
                let bucket = bucket.clone();
                tokio::task::spawn_local(async move { send(answer(&bucket, ask, bytes).await) });
            }
        }
    }
}

async fn answer(bucket: &S3, ask: Ask, bytes: Vec<u8>) -> (Said, Vec<u8>) {
    let most = match &ask {
        Ask::Get { max, .. } => *max,
        Ask::Range { start, end, .. } => end.saturating_sub(*start),
        Ask::List { .. } => 64 << 20,
        _ => bytes.len() as u64,
    };
    let patience = SILENCE - SOONER + Duration::from_secs(most / BYTES_PER_SECOND_MIN);
    let done = async {
        match ask {
            Ask::Get { name, max } => bucket.get(&name, max).await,
            Ask::Range { name, start, end } => bucket.range(&name, start, end).await,
            Ask::Put { name, only } => bucket.put(&name, bytes, only).await,
            Ask::Delete { name } => bucket.delete(&name).await,
            Ask::List { prefix } => bucket.list(&prefix).await,
            Ask::Open { .. } => Ok((Said::Done, Vec::new())),
        }
    };
    match tokio::time::timeout(patience, done).await {
        Ok(Ok(heard)) => heard,
        Ok(Err(said)) => (said, Vec::new()),
        Err(_) => (Said::Transient("no answer in time".into()), Vec::new()),
    }
}
