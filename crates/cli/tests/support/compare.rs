//! Independent comparison of two trees: diff, rsync, getfattr, and a walk with stat(2).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::snapshot::{Snapshot, attributes};
use super::{program, walk};

/// What must be equal in addition to names, types, contents, links and modes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compare {
    pub(crate) owners: bool,
    pub(crate) times: bool,
    pub(crate) xattrs: bool,
    /// Whether several names share one file.
    pub(crate) hard_links: bool,
}

impl Compare {
    pub(crate) const ALL: Self = Self {
        owners: true,
        times: true,
        xattrs: true,
        hard_links: true,
    };

    /// Asserts equality.
    #[track_caller]
    pub(crate) fn check(self, source: &Path, target: &Path) {
        by_diff(source, target);
        self.by_rsync(source, target);
        if self.xattrs {
            by_getfattr(source, target);
        }
        self.by_stat(source, target);
        if self.hard_links {
            assert_eq!(link_groups(source), link_groups(target), "hard links differ");
        }
        no_temporaries(target);
    }

    #[track_caller]
    fn by_rsync(self, source: &Path, target: &Path) {
        let Some(rsync) = program("rsync") else {
            println!("skipped: rsync is not installed; attributes are compared by stat alone");
            return;
        };
        let mut process = Command::new(rsync);
        process.args(["-anic", "--delete"]);
        if self.xattrs {
            process.arg("-AX");
        }
        if self.hard_links {
            process.arg("-H");
        }
        if !self.owners {
            process.args(["--no-owner", "--no-group"]);
        }
        if !self.times {
            process.arg("--no-times");
        }
        let output = run(process.arg(slashed(source)).arg(slashed(target)));
        let said = both(&output);
        assert!(
            output.status.success() && said.trim().is_empty(),
            "rsync finds differences:\n{}",
            head(&said)
        );
    }

    #[track_caller]
    fn by_stat(self, source: &Path, target: &Path) {
        let (mut left, mut right) = (attributes(source), attributes(target));
        for nodes in [&mut left, &mut right] {
            for node in nodes.values_mut() {
                if !self.owners {
                    (node.user, node.group) = (0, 0);
                }
                if !self.times {
                    node.modified = (0, 0);
                }
                if !self.hard_links {
                    node.links = 1;
                }
            }
        }
        assert_equal(&left, &right);
    }
}

/// Asserts that two trees are equal in everything.
#[track_caller]
pub(crate) fn same(source: &Path, target: &Path) {
    Compare::ALL.check(source, target);
}

/// Asserts equal names, types and contents.
#[track_caller]
pub(crate) fn content_same(source: &Path, target: &Path) {
    by_diff(source, target);
    no_temporaries(target);
}

/// Asserts that no temporary name of the program is left anywhere below.
#[track_caller]
pub(crate) fn no_temporaries(root: &Path) {
    let left: Vec<PathBuf> = walk(root)
        .into_iter()
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b".ropeway-"))
        })
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[track_caller]
fn assert_equal(left: &Snapshot, right: &Snapshot) {
    let mut faults = Vec::new();
    for (path, node) in left {
        match right.get(path) {
            None => faults.push(format!("missing: {path:?}")),
            Some(other) if other != node => faults.push(format!("{path:?}\n  is {other:?}\n  not {node:?}")),
            Some(_) => {}
        }
    }
    let extra = right.keys().filter(|path| !left.contains_key(*path));
    faults.extend(extra.map(|path| format!("extra: {path:?}")));
    assert!(
        faults.is_empty(),
        "stat finds differences:\n{}",
        head(&faults.join("\n"))
    );
}

#[track_caller]
fn by_diff(source: &Path, target: &Path) {
    let output = run(Command::new("diff")
        .args(["-r", "--no-dereference"])
        .arg(source)
        .arg(target));
    let said = both(&output);
    let differences: Vec<&str> = said.lines().filter(|line| !is_same_special(line)).collect();
    assert!(
        differences.is_empty(),
        "diff finds differences:\n{}",
        head(&differences.join("\n"))
    );
    let told = output.status.code().is_some_and(|code| code == 0 || code == 1);
    assert!(told, "diff failed: {said}");
}

/// diff prints `File a is a fifo while file b is a fifo` for two equal special files.
fn is_same_special(line: &str) -> bool {
    let kind = |text: &str| text.rsplit(" is a ").next().map(str::to_owned);
    line.split_once(" while file ")
        .is_some_and(|(left, right)| left.contains(" is a ") && kind(left) == kind(right))
}

#[track_caller]
fn by_getfattr(source: &Path, target: &Path) {
    let Some(getfattr) = program("getfattr") else {
        println!("skipped: getfattr is not installed; extended attributes are not compared");
        return;
    };
    let dump = |root: &Path| {
        let mut process = Command::new(&getfattr);
        process
            .args(["-R", "-P", "-h", "-d", "-m", "-", "-e", "hex", "."])
            .current_dir(root);
        let output = run(&mut process);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut blocks: Vec<String> = text
            .split("\n\n")
            .map(|block| sorted_lines(block.trim()))
            .collect();
        blocks.sort();
        blocks
    };
    if source.is_dir() {
        assert_eq!(dump(source), dump(target), "getfattr finds differences");
    }
}

fn sorted_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n")
}

/// Returns the sets of names that share one file, for files with more than one name.
fn link_groups(root: &Path) -> Vec<Vec<PathBuf>> {
    let mut groups: BTreeMap<(u64, u64), Vec<PathBuf>> = BTreeMap::new();
    for path in walk(root) {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        if !metadata.is_dir() && metadata.nlink() > 1 {
            let name = path.strip_prefix(root).unwrap().to_owned();
            groups
                .entry((metadata.dev(), metadata.ino()))
                .or_default()
                .push(name);
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort();
    groups
}

fn run(process: &mut Command) -> Output {
    process
        .env("LC_ALL", "C")
        .output()
        .unwrap_or_else(|error| panic!("{process:?}: {error}"))
}

fn both(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// Adds a slash at the end, which for rsync means the contents.
fn slashed(path: &Path) -> std::ffi::OsString {
    let mut text = path.as_os_str().to_owned();
    if path.is_dir() {
        text.push(OsStr::new("/"));
    }
    text
}

fn head(text: &str) -> String {
    text.lines().take(30).collect::<Vec<_>>().join("\n")
}
