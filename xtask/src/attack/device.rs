//! Loop devices that fail as devices do.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::process::{capture, find_program};

/// The loop driver takes a request of which its file took only a part for done: where the file runs full in the middle of
/// one, the device would lie. Requests of a page are taken whole, or fail.
///
/// # Errors
/// If the device of the image cannot be found or set.
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
