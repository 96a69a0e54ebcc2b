//! Standard input and output as the protocol library's transport, with everything bounded.
//!
//! A thread reads and one writes, each behind a short queue. No message is taken from the first where
//! [`REQUESTS_MAX`] requests are in hand or [`ANSWERS_MAX`] answers wait for a client that does not read: it
//! then waits in the pipe. The library's own transport drops what it cannot read without a word.

use super::answer::Answer;
use super::limits::{ANSWERS_MAX, REQUESTS_MAX};
use super::lines::{Received, receive};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResult, ClientJsonRpcMessage, ClientRequest, ErrorData, GetExtensions, GetMeta,
    RequestId, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use std::io::{self, BufReader, Write};
use std::sync::Arc;
use std::sync::mpsc as threads;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How long requests in hand may take after the client has left.
const LINGER: Duration = Duration::from_secs(30);

/// A request's share of [`REQUESTS_MAX`]; it goes with the request, and is free when that is done.
#[derive(Clone)]
#[allow(dead_code, reason = "it is held, not looked at")]
struct Share(Arc<OwnedSemaphorePermit>);

/// Standard input and output.
pub struct Stdio {
    incoming: mpsc::Receiver<Received>,
    outgoing: mpsc::Sender<Vec<u8>>,
    shares: Arc<Semaphore>,
    /// A request has opened the session.
    opened: bool,
    /// The client speaks 2024-11-05 to 2025-11-25: it began with `initialize`.
    is_older: bool,
}

impl Stdio {
    /// Starts the threads. What is given with it tells when everything is written.
    pub fn open() -> io::Result<(Stdio, threads::Receiver<()>)> {
        let (to_server, incoming) = mpsc::channel(1);
        let (outgoing, to_client) = mpsc::channel(ANSWERS_MAX);
        let (done, written) = threads::channel();
        std::thread::Builder::new()
            .name("mcp-read".into())
            .spawn(move || read(&to_server))?;
        std::thread::Builder::new()
            .name("mcp-write".into())
            .spawn(move || {
                write(to_client);
                // Nobody waits any more where the process is about to end.
                let _ = done.send(());
            })?;
        let stdio = Stdio {
            incoming,
            outgoing,
            shares: Arc::new(Semaphore::new(REQUESTS_MAX)),
            opened: false,
            is_older: false,
        };
        Ok((stdio, written))
    }

    /// The next message, once there is room for it; `None` where the client has left.
    async fn next(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let share = self.shares.clone().acquire_owned().await.ok()?;
            let place = self.outgoing.reserve().await.ok()?;
            let received = tokio::select! {
                received = self.incoming.recv() => received?,
                () = self.outgoing.closed() => return None,
            };
            // Nothing is awaited from here on: this may be given up wherever it waits.
            let message = match received {
                Received::Message(message) => *message,
                Received::Failed(id, text) => {
                    place.send(failed(id, text, self.is_older));
                    continue;
                }
                Received::Refused(id, error) => {
                    place.send(refused(id, error));
                    continue;
                }
            };
            drop(place);
            if let Some(message) = self.admit(message, share) {
                return Some(message);
            }
        }
    }

    /// A message that is to be handled, with its share. Before a session is open only requests are, as
    /// the library gives up at anything else.
    fn admit(
        &mut self,
        mut message: ClientJsonRpcMessage,
        share: OwnedSemaphorePermit,
    ) -> Option<ClientJsonRpcMessage> {
        if let ClientJsonRpcMessage::Request(request) = &mut message {
            let opens = matches!(request.request, ClientRequest::InitializeRequest(_));
            self.is_older |= opens;
            self.opened |= opens || request.request.get_meta().protocol_version().is_some();
            let extensions = request.request.extensions_mut();
            extensions.insert(Share(Arc::new(share)));
            return Some(message);
        }
        self.opened.then_some(message)
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let outgoing = self.outgoing.clone();
        async move {
            let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
            outgoing.send(encode(&item)).await.map_err(gone)
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        if let Some(message) = self.next().await {
            return Some(message);
        }
        // What is in hand is finished and answered, unless nobody is there to read that.
        tokio::select! {
            _ = self.shares.acquire_many(REQUESTS_MAX as u32) => {}
            () = self.outgoing.closed() => {}
            () = tokio::time::sleep(LINGER) => {}
        }
        None
    }

    async fn close(&mut self) -> io::Result<()> {
        self.incoming.close();
        Ok(())
    }
}

/// The answer to a call of a tool that fails with a text.
fn failed(id: RequestId, text: String, is_older: bool) -> Vec<u8> {
    let mut result = CallToolResult::from(Answer::text(text).failed());
    // Newer clients require it, older ones do not know it.
    if is_older {
        result.result_type = None;
    }
    encode(&ServerJsonRpcMessage::response(
        ServerResult::CallToolResult(result),
        id,
    ))
}

/// An error; one whose id is not known has `null` for it (JSON-RPC 2.0, section 5).
fn refused(id: Option<RequestId>, error: ErrorData) -> Vec<u8> {
    if id.is_some() {
        return encode(&ServerJsonRpcMessage::error(error, id));
    }
    let message = serde_json::json!({ "jsonrpc": "2.0", "id": null, "error": error });
    format!("{message}\n").into_bytes()
}

fn encode(message: &ServerJsonRpcMessage) -> Vec<u8> {
    // Every part of a message is text, numbers and maps with text for keys, so this cannot fail.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Reads messages until the input ends or nobody takes them any more.
fn read(to_server: &mpsc::Sender<Received>) {
    let mut input = BufReader::new(io::stdin().lock());
    while let Ok(Some(received)) = receive(&mut input) {
        if to_server.blocking_send(received).is_err() {
            return;
        }
    }
}

/// Writes lines until there are no more or nobody reads them any more.
fn write(mut to_client: mpsc::Receiver<Vec<u8>>) {
    let mut out = io::stdout().lock();
    while let Some(line) = to_client.blocking_recv() {
        if out.write_all(&line).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
