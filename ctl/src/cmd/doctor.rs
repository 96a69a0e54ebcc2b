//! `agentvfs doctor`.

use crate::cli::{Global, RowArgs};
use crate::doctor::{Finding, Grade, examine};
use crate::output::{Rows, colour_wanted, print, print_json};
use agentvfs_client::context::find_home;
use agentvfs_client::failure::{FAILED, Failure};
use agentvfs_client::quote::one_line;
use serde_json::{Value, json};
use std::io::IsTerminal;

/// Prints what was found; 1 where something is broken.
pub fn run(args: &RowArgs, global: &Global) -> Result<u8, Failure> {
    let findings = examine(&find_home(global.root.as_deref())?);
    let worst = findings.iter().map(|f| f.grade).max();
    let healthy = worst != Some(Grade::Broken);
    if global.json {
        let checks: Vec<Value> = findings.iter().map(object).collect();
        print_json(&json!({ "healthy": healthy, "checks": checks }))?;
    } else if std::io::stdout().is_terminal() && !args.nul {
        print(told(&findings, colour_wanted()).as_bytes())?;
    } else {
        let mut rows = Rows::new(&["GRADE", "CHECK", "FINDING", "FIX"]);
        for finding in &findings {
            let fix = finding.fix.as_deref().unwrap_or("-");
            rows.push(
                [finding.grade.word(), finding.check, &finding.text, fix]
                    .map(|cell| cell.as_bytes().to_vec())
                    .to_vec(),
            );
        }
        rows.print(args.nul)?;
    }
    Ok(if healthy { 0 } else { FAILED })
}

fn object(finding: &Finding) -> Value {
    json!({
        "check": finding.check,
        "grade": finding.grade.word(),
        "finding": finding.text,
        "fix": finding.fix,
    })
}

/// For a person: a line for each finding, and below it what to do.
fn told(findings: &[Finding], colour: bool) -> String {
    let width = findings.iter().map(|f| f.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let code = match finding.grade {
            Grade::Ok => "32",
            Grade::Warning => "33",
            Grade::Broken => "31",
        };
        let word = format!("{:<7}", finding.grade.word());
        let word = if colour {
            format!("\x1b[{code}m{word}\x1b[0m")
        } else {
            word
        };
        text.push_str(&format!(
            "{word}  {:<width$}  {}\n",
            finding.check,
            one_line(&finding.text)
        ));
        if let Some(fix) = &finding.fix {
            text.push_str(&format!(
                "         {:<width$}  fix: {}\n",
                "",
                one_line(fix)
            ));
        }
    }
    text
}
