//! Texts of policies.

use agentvfs_policy::{Asker, Bench, FeedOp, Policy, ToolCall, Touch};
use std::sync::Arc;
use std::time::Duration;

/// A text gives rules or a fault that says where; rules judge whatever comes.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let policy = match Policy::load(text) {
        Ok(policy) => policy,
        Err(fault) => {
            assert!(fault.line > 0 && fault.column > 0 && !fault.why.is_empty());
            assert!(!fault.why.contains('\n'), "{fault}");
            return;
        }
    };
    let texts = [text.to_owned()];
    policy.judge_tool(&ToolCall {
        tool: "Bash",
        texts: &texts,
        branch: "main",
        run: Some("r"),
    });
    policy.reaches_below(bytes);
    let mut bench = Bench::new(Arc::new(policy));
    let asker = Asker {
        comm: "rm",
        branch: "main",
        ..Asker::default()
    };
    let (from, to) = (&b"a/b"[..], bytes);
    for second in 0..3 {
        bench.begin(&asker, Duration::from_secs(second));
        for op in FeedOp::ALL {
            bench.touch(Touch::At(op, bytes));
        }
        let is_dir = second == 0;
        bench.touch(Touch::Moved { is_dir, from, to });
        bench.touch(Touch::Linked { from, to });
        bench.open();
        bench.end();
        bench.made();
    }
}

/// Rules of all kinds, and texts that are none.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "version = 1\n[[rule]]\nname = \"mass-delete\"\nop = [\"unlink\", \"rmdir\"]\npath = \"**\"\nrate = \"200/10s\"\nverdict = \"deny\"\n",
        "[[rule]]\nop = \"write\"\npath = [\"a/**\", \"{b,c}/[d-e]?\"]\nuid = [0, 1]\ncommand = \"py*\"\nbranch = \"m*\"\nrun = \"*\"\nverdict = \"deny\"\nerrno = \"EPERM\"\n",
        "[[rule]]\ntool = \"Bash\"\ninput = \"regex:git\\\\s+push\"\nverdict = \"ask\"\nreason = \"no\"\n",
        "[[rule]]\nop = \"rename\"\nverdict = \"program\"\non_error = \"allow\"\n[program]\nlua = \"\"\n",
        "[program]\nwasm = \"AGFzbQ==\"\n",
        "rule = [{verdict = \"soft_watch\", opp = 1}]",
        "[[rule]\n",
    ];
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}
