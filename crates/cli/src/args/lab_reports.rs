//! Flags of `ropeway lab report` and `ropeway lab compare`.

use std::path::PathBuf;

use clap::Args;

use super::AFTER_HELP;

/// `ropeway lab report`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabReportArgs {
    /// The report.json of a lab, or its folder
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Folder for the reports [default: the file's folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// One JSON object on standard output instead of the table
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ropeway lab compare`.
#[derive(Args, Clone, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct LabCompareArgs {
    /// The earlier report.json, or its folder
    #[arg(value_name = "BEFORE")]
    pub(crate) before: PathBuf,
    /// The later report.json, or its folder
    #[arg(value_name = "AFTER")]
    pub(crate) after: PathBuf,
    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
