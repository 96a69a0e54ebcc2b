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
            "readdir lists what there is; paths count from the workspace's root, and where ref is given \
             from that commit's"
        }
        "wrong-type" => "stat tells what it is",
        "link-loop" => "stat tells where a symbolic link leads",
        "exists" => "choose another name; stat tells what has it",
        "not-empty" => "recursive removes it with everything in it; readdir lists that",
        "no-such-branch" => "branch_list lists the branches",
        "branch-exists" => "choose another name; branch_list lists those that are taken",
        "merge-with-itself" => "name two branches with from and into; branch_list lists them",
        "no-conflict" => "conflicts lists what is to be settled",
        "no-such-ref" | "no-such-commit" => {
            "log lists the commits, with all the automatic ones too"
        }
        "ambiguous-ref" => {
            "give more digits of the id; log lists them, with all the automatic ones too"
        }
        "nothing-to-undo" => "log tells where the branch is; redo takes an undo back",
        "later-changes" => "over_later_changes goes back over them; they stay in log",
        "no-such-call" | "call-over" => "timeline lists the calls of a branch",
        "call-unknown" => {
            "tool_diff tells what changed meanwhile; restore takes single paths back from a commit"
        }
        "no-such-key" => "kv_list lists the keys",
        "too-long" => {
            "keep what is long in a file, and its path as the value; kv_delete removes a key"
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
            .hint("agentvfs workspace start w");
        assert_eq!(
            in_tools_words(failure).hint.unwrap(),
            "agentvfs workspace start w"
        );
    }
}
