//! `agentvfs workspace delete`.

use super::Context;
use crate::cli::DeleteArgs;
use crate::output::{Facts, talk};
use agentvfs_client::failure::Failure;
use agentvfs_client::protocol::{Call, Named};
use agentvfs_client::quote::shown;
use serde_json::Value;
use std::io::{self, IsTerminal, Write};

/// Removes a workspace, once somebody said so.
pub fn run(args: &DeleteArgs, context: &mut Context) -> Result<u8, Failure> {
    let asks = io::stdin().is_terminal() && io::stderr().is_terminal();
    if !args.yes && !asks {
        return Err(
            Failure::usage("delete asks for confirmation, and this is not a terminal")
                .hint("use --yes"),
        );
    }
    let name = context.workspace_to_change(args.name.as_deref())?;
    let what = format!("cannot delete {name}");
    if !args.yes && !confirmed(&name)? {
        return Err(Failure::new(what, "it was not confirmed").kind("not-confirmed"));
    }
    let base = context.info(&name)?.map(|info| shown(&info.base.0));
    let call = Call::Delete(Named {
        workspace: name.clone(),
    });
    let _: Value = context.ask_with_bar(&what, &call, "deleting")?;
    super::run::kept::forget_workspace(context.home(), &name);
    let mut facts = Facts::default();
    facts.add("name", name.as_bytes()).add("status", b"deleted");
    facts.print(context.json())?;
    let base = base.map_or_else(String::new, |base| {
        format!("; its project {base} is unchanged")
    });
    talk(&format!(
        "workspace {name} with all its branches: deleted for ever{base}"
    ));
    Ok(0)
}

fn confirmed(name: &str) -> Result<bool, Failure> {
    let mut err = io::stderr();
    write!(err, "Delete workspace {name} with all its commits? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
