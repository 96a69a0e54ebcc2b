//! `agentvfs serve`.

use super::Context;
use crate::cli::ServeVerb;
use agentvfs_client::failure::Failure;
use agentvfs_mcp::{Session, serve};

/// Serves until the client leaves.
pub fn run(verb: ServeVerb, context: Context) -> Result<u8, Failure> {
    match verb {
        ServeVerb::Mcp(args) => serve(Session::open(args.exports.as_deref(), context.asking)?)?,
    }
    Ok(0)
}
