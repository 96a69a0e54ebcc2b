//! What to do about a failure, in the words of the tools.
//!
//! The daemon's hints name commands. Whoever has only tools gets the tool and the parameter that does the same;
//! what no tool does keeps its command, which is for the person at the machine.

use agentvfs_client::failure::Failure;

/// The failure with a hint that names tools.
pub fn in_tools_words(failure: Failure) -> Failure {
    match hint(&failure.kind) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// What to do about a failure of a kind; `None` where what the daemon says is right here, too.
fn hint(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "no-such-path" => {
            "readdir lists what exists; paths start at the workspace's root, with ref at \
             that commit's root"
        }
        "wrong-type" => "stat shows what it is",
        "link-loop" => "stat shows the target of a symbolic link",
        "exists" => "use another name; stat shows what has this one",
        "not-empty" => "recursive removes it with all its entries; readdir lists them",
        "no-such-branch" => "branch_list lists the branches",
        "branch-exists" => "use another name; branch_list lists the names in use",
        "merge-with-itself" => "use two branches: from and into; branch_list lists them",
        "no-conflict" => "conflicts lists the open conflicts",
        "no-such-ref" | "no-such-commit" => {
            "log lists the commits; with all also the automatic ones"
        }
        "ambiguous-ref" => {
            "use more digits of the id; log lists the commits, with all also the automatic ones"
        }
        "nothing-to-undo" => "log shows the head and the commits; redo reverses an undo",
        "later-changes" => "over_later_changes goes back past them; they stay in log",
        "no-such-call" | "call-over" => "timeline lists the calls of a branch",
        "call-unknown" => {
            "tool_diff shows what changed while it ran; restore restores single paths from a commit"
        }
        "no-such-key" => "kv_list lists the keys",
        "too-long" => {
            "store long data in a file, and its path as the value; kv_delete removes a key"
        }
        "no-base" => "export writes everything as one file",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_tools_where_there_is_one() {
        let failure = Failure::new("cannot read", "none")
            .kind("no-such-path")
            .hint("agentvfs fs ls lists what there is");
        assert!(
            in_tools_words(failure)
                .hint
                .unwrap()
                .starts_with("readdir ")
        );
        let failure = Failure::new("cannot write", "not running")
            .kind("not-running")
            .hint("agentvfs start w");
        assert_eq!(in_tools_words(failure).hint.unwrap(), "agentvfs start w");
    }
}
