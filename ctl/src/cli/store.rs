//! Verbs of the store as a whole: what they can be given.

use clap::Args;

#[doc = concat!("Arguments of `config`.")]
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// A setting to show, or to change with =VALUE; all are shown where none is given
    #[arg(value_name = "KEY[=VALUE]")]
    pub settings: Vec<String>,
}

/// What `config --help` says of the settings.
pub const SETTINGS_HELP: &str = "\
Settings, with their defaults:
  auto-idle=10s     rest after which an automatic commit is made; off: never
  auto-busy=1m      time after which one is made though there is no rest; off: never
  keep-all=1h       age up to which all automatic commits are kept
  keep-hourly=1d    age up to which one an hour is kept
  keep-daily=30d    age up to which one a day is kept
  keep-calls=30d    age up to which what was there before and after each tool call is kept
  end-calls=1h      age at which a tool call that nobody ended counts as over, where no process
                    holds it; or off
  quota=none        space that the home may take, such as 20G; then writes fail with EDQUOT
  gc-grace=1h       age up to which gc leaves alone what nothing needs any more
  gc=auto           gc runs by itself when that is worthwhile; off: only when asked for

Example:
  agentvfs config quota=20G keep-daily=90d";

#[doc = concat!("Arguments of `gc`.")]
#[derive(Debug, Args)]
pub struct GcArgs {
    /// Leave alone what was written or deleted less than this ago, such as 0s, 30m, 2h [default: the
    /// setting gc-grace]
    #[arg(long, value_name = "DURATION")]
    pub grace: Option<String>,
    /// Change nothing; say what would go
    #[arg(long)]
    pub dry_run: bool,
}

#[doc = concat!("Arguments of `fsck`.")]
#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Show the plan of a repair, then carry it out; what is replaced is kept in damaged/ in the home
    #[arg(long)]
    pub repair: bool,
    /// With --repair: only show the plan
    #[arg(long, requires = "repair")]
    pub dry_run: bool,
    /// Read all packs in place of their indexes, and write the indexes anew
    #[arg(long)]
    pub rebuild_index: bool,
}
