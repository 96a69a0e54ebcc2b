//! `agentvfs serve`.

use super::Context;
use crate::cli::ServeVerb;
use agentvfs_client::failure::Failure;
use agentvfs_mcp::{Session, serve, serve_nothing};

/// Serves until the client leaves.
pub fn run(verb: ServeVerb, context: Context) -> Result<u8, Failure> {
    match verb {
        ServeVerb::Mcp(args) => {
            let mut context = context.asking;
            let is_somewhere = !args.here
                || context.surroundings().named(None)?.is_some()
                || context.workspace_here()?.is_some();
            match is_somewhere {
                true => serve(Session::open(args.exports.as_deref(), context)?)?,
                false => serve_nothing()?,
            }
        }
    }
    Ok(0)
}
