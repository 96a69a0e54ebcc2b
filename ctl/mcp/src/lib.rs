//! `agentvfs serve mcp`: the Model Context Protocol over standard input and output.
//!
//! Sits on the control protocol as the commands do: a tool's call becomes requests to the daemon, and
//! its errors are told in the words of the commands. This is the only part of the program that starts an
//! asynchronous runtime, as the protocol's library wants one.
//!
//! Invariants: whatever a client sends costs at most its own server: messages, their number in hand, and
//! results are bounded ([`limits`]). Tools that change something run one at a time, in the order in which
//! they were asked for; no tool reaches beyond the workspace. Nothing here knows the engine.

#![forbid(unsafe_code)]

mod answer;
mod call;
mod hints;
mod limits;
mod lines;
mod paths;
mod pool;
mod record;
mod scan;
mod server;
mod session;
mod tools;
mod transport;

pub use session::Session;

use agentvfs_client::failure::Failure;
use server::{Nothing, Server};
use std::time::Duration;
use transport::Stdio;

/// How long answers that are on their way may take after the client has left.
const FAREWELL: Duration = Duration::from_secs(5);

/// Serves the client on standard input and output until it leaves.
pub fn serve(session: Session) -> Result<(), Failure> {
    served_by(Server::new(session))
}

/// The same without any tool, where there is no workspace: agents take a server that ends for one that failed.
pub fn serve_nothing() -> Result<(), Failure> {
    served_by(Nothing)
}

fn served_by(server: impl rmcp::ServerHandler) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .max_blocking_threads(limits::THREADS_MAX)
        .build()
        .map_err(|e| Failure::new("cannot serve", e.to_string()))?;
    let (stdio, written) =
        Stdio::open().map_err(|e| Failure::new("cannot serve", e.to_string()))?;
    let served = runtime.block_on(async {
        match rmcp::serve_server(server, stdio).await {
            Ok(service) => service
                .waiting()
                .await
                .map(|_| ())
                .map_err(|e| e.to_string()),
            // It left, or never spoke: nothing was wanted.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    });
    runtime.shutdown_background();
    // Whatever still waits to be written is lost only where nobody reads it.
    let _ = written.recv_timeout(FAREWELL);
    served.map_err(|why| {
        Failure::new("the client does not speak MCP", why)
            .hint("MCP clients start this command; docs/mcp.md shows how to configure them")
    })
}
