//! Verbs of the store as a whole: what they can be given.

use clap::Args;

#[doc = concat!("Arguments of `config`.")]
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// A setting to show, or to change with =VALUE [default: show all]
    #[arg(value_name = "KEY[=VALUE]")]
    pub settings: Vec<String>,
}

/// What `config --help` says of the settings.
pub const SETTINGS_HELP: &str = "\
Settings, with their defaults:
  auto-idle=10s     idle time before an automatic commit; off: none
  auto-busy=1m      time between automatic commits while changes go on; off: none
  keep-all=1h       keep all automatic commits up to this age
  keep-hourly=1d    keep one automatic commit an hour up to this age
  keep-daily=30d    keep one automatic commit a day up to this age
  keep-calls=30d    keep the states before and after each tool call, run and turn of an agent up to this age
  end-calls=1h      end a tool call that no process holds at this age; off: never
  quota=none        limit of the home's size, such as 20G; beyond it writes fail with EDQUOT
  cache=20G         limit of file contents that lazy workspaces have fetched; gc drops the oldest beyond it, as
                    far as the remote has them; none: no limit
  gc-grace=1h       keep unreachable objects up to this age
  gc=auto           run gc when it is worthwhile; off: only on request

Example:
  agentvfs config quota=20G keep-daily=90d";

#[doc = concat!("Arguments of `gc`.")]
#[derive(Debug, Args)]
pub struct GcArgs {
    /// Keep what was written or deleted within this time, such as 0s, 30m, 2h [default: the setting
    /// gc-grace]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Change nothing; show what would be freed
    #[arg(long)]
    pub dry_run: bool,
}

#[doc = concat!("Arguments of `fsck`.")]
#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Print a repair plan, then carry it out; replaced files are kept in damaged/ in the home
    #[arg(long)]
    pub repair: bool,
    /// With --repair: only print the plan
    #[arg(long, requires = "repair")]
    pub dry_run: bool,
    /// Read all packs instead of their indexes, and rebuild the indexes
    #[arg(long)]
    pub rebuild_index: bool,
}
