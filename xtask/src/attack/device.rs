//! Loop devices that fail like real devices.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{capture, find_program};

/// Limits requests of the image's device to a page. The loop driver reports a request as done even if its
/// file took only a part of it, because it became full. Requests of one page succeed or fail as a whole.
///
/// # Errors
/// The device cannot be found or changed.
pub(super) fn write_pages_one_by_one(image: &Path) -> Result<()> {
    let losetup = find_program("losetup").context("losetup is missing")?;
    let device = capture(
        Command::new(losetup)
            .args(["--noheadings", "--output", "NAME", "--associated"])
            .arg(image),
    )?;
    let name = device.trim().trim_start_matches("/dev/");
    let setting = format!("/sys/block/{name}/queue/max_sectors_kb");
    fs::write(&setting, "4").with_context(|| format!("cannot set {setting}"))
}
