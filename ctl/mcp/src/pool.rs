//! Connections to the daemon for several calls at once.
//!
//! A call has one for itself. Invariant: a connection that broke, or that the daemon has closed because
//! nothing was asked for long, is not used again, so a call fails for what happens during it alone.

use agentvfs_client::context::Context;
use agentvfs_client::failure::Failure;
use parking_lot::Mutex;

/// Connections that nobody uses now, and how more are made.
pub struct Pool {
    /// What further ones are made after, which is never connected itself; those that are free.
    state: Mutex<(Context, Vec<Context>)>,
}

impl Pool {
    /// A pool that begins with this connection.
    pub fn new(first: Context) -> Result<Pool, Failure> {
        let model = first.another()?;
        Ok(Pool {
            state: Mutex::new((model, vec![first])),
        })
    }

    /// Does something with a connection.
    pub fn with<R>(&self, work: impl FnOnce(&mut Context) -> R) -> Result<R, Failure> {
        let mut context = {
            let mut state = self.state.lock();
            match state.1.pop() {
                Some(context) => context,
                None => state.0.another()?,
            }
        };
        context.drop_dead_connection();
        let result = work(&mut context);
        self.state.lock().1.push(context);
        Ok(result)
    }
}
