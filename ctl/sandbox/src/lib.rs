//! A command in a sandbox: in namespaces of its own, with the machine read-only and what was chosen of it hidden.
//!
//! [`start`] takes a [`Plan`] (which trees are where, what is hidden) and gives a [`Standing`] sandbox, in which
//! the command waits to be let go; [`Standing::go`] lets it, and waits for its end. Invariant: it knows nothing of
//! workspaces, branches or daemons, and prints nothing. What it cannot put in force is an error before the command
//! runs, never a sandbox with less, unless the plan says so ([`Protection`]).
//!
//! Two processes belong to it: the caller, who passes signals on (`outside`), and process 1 of the sandbox
//! (`inside`), which builds it, starts the command and reaps. They talk over two pipes (`wire`). `sys` has all
//! unsafe code. `reach` and `again` are what is done later in a sandbox that stands. `copies` keeps what a session changes of directories that it sees as copies, and writes back from
//! them what may be. docs/sandbox.md says what is protected from what.

pub mod again;
mod cgroup;
pub mod copies;
mod descriptors;
mod error;
mod ids;
mod inside;
mod layers;
mod outside;
mod own;
mod pieces;
mod plan;
mod private;
pub mod reach;
mod sockets;
mod sys;
mod texts;
mod tree;
mod wire;

pub use descriptors::Replaced;
pub use error::{Error, Result};
pub use outside::{Ended, Standing, start};
pub use own::OWN_PROC;
pub use plan::{Limits, Nested, Net, PathRule, Plan, Protection, What};
pub use private::are_replaced_by;
