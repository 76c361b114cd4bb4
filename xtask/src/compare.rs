//! Independent comparison of two trees: other people's programs, not ours.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::process::{capture, find_program};

/// Compares contents by `diff -r --no-dereference` and, where rsync is there, attributes by `rsync -anic --delete`.
/// Says what was not compared.
///
/// # Errors
/// Shows the first differences.
pub(crate) fn trees_equal(source: &Path, target: &Path) -> Result<Option<&'static str>> {
    same_content(source, target)?;
    if find_program("rsync").is_none() {
        return Ok(Some("rsync is missing: attributes were not compared"));
    }
    let mut rsync = Command::new("rsync");
    rsync.args(["-anicHAX", "--delete"]);
    rsync.arg(slashed(source)).arg(slashed(target));
    let said = capture(&mut rsync)?;
    if !said.trim().is_empty() {
        bail!("the trees differ, says rsync:\n{}", head(&said));
    }
    Ok(None)
}

/// Compares contents by `diff -r --no-dereference`.
///
/// # Errors
/// Shows the first differences.
pub(crate) fn same_content(source: &Path, target: &Path) -> Result<()> {
    let mut diff = Command::new("diff");
    diff.args(["-r", "--no-dereference"]).arg(source).arg(target);
    let output = diff.output().context("cannot start diff")?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!(
            "the trees differ, says diff:\n{}",
            head(&String::from_utf8_lossy(&said))
        );
    }
    Ok(())
}

/// A path with a slash at its end: rsync then means the content of the folder.
fn slashed(path: &Path) -> std::ffi::OsString {
    let mut text = path.as_os_str().to_owned();
    text.push("/");
    text
}

fn head(text: &str) -> String {
    text.lines().take(20).collect::<Vec<_>>().join("\n")
}

/// Asserts equal contents.
#[cfg(test)]
pub(crate) fn trees_equal_content(source: &Path, target: &Path) {
    let status = Command::new("diff").arg("-r").args([source, target]).status();
    assert!(status.is_ok_and(|status| status.success()), "the trees differ");
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn content_and_times_matter() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir(&a).unwrap();
        fs::write(a.join("file"), "same").unwrap();
        let copied = Command::new("cp").arg("-a").args([&a, &b]).status().unwrap();
        assert!(copied.success());
        if let Some(note) = trees_equal(&a, &b).unwrap() {
            println!("skipped: {note}");
        } else {
            let file = fs::File::options().write(true).open(b.join("file")).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(100))
                .unwrap();
            assert!(trees_equal(&a, &b).unwrap_err().to_string().contains("rsync"));
        }
        fs::write(b.join("file"), "sama").unwrap();
        assert!(trees_equal(&a, &b).unwrap_err().to_string().contains("diff"));
    }
}
