//! What strace says of a program, in the form in which operations are compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::program;

/// One system call: name, path, second path, and the result: bytes, `ok` or an errno.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seen {
    pub(crate) call: String,
    pub(crate) path: String,
    pub(crate) to: String,
    pub(crate) result: String,
}

/// Calls whose result is a number of bytes.
const TRANSFERS: &[&str] = &[
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "copy_file_range",
    "sendfile",
];
/// Calls on descriptors that are no operations on files.
const OTHERS: &[&str] = &[
    "close_range",
    "dup",
    "dup2",
    "dup3",
    "epoll_ctl",
    "epoll_wait",
    "getcwd",
    "poll",
    "ppoll",
    "pselect6",
    "select",
];

/// Runs a command in `folder`, below strace, with the environment of the tests.
pub(crate) fn strace(command: &[&str], folder: &Path, scratch: &Path) -> Result<Vec<Seen>, String> {
    let found = program("strace").ok_or("strace is not installed")?;
    let _ = fs::remove_dir_all(scratch);
    fs::create_dir_all(scratch).map_err(|error| error.to_string())?;
    let status = Command::new(found)
        .args([
            "-ff",
            "-qq",
            "-y",
            "-s",
            "0",
            "-e",
            "signal=none",
            "-e",
            "trace=%file,%desc",
            "-o",
        ])
        .arg(scratch.join("calls"))
        .args(command)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", folder)
        .env("LC_ALL", "C.UTF-8")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => return Err(format!("strace cannot run {command:?}: {other:?}")),
    }
    let mut seen = Vec::new();
    for file in fs::read_dir(scratch).unwrap() {
        let text = fs::read(file.unwrap().path()).unwrap();
        let mut cwd = folder.to_str().unwrap().to_owned();
        let text = String::from_utf8_lossy(&text);
        seen.extend(text.lines().filter_map(|line| parse(line, &mut cwd)));
    }
    Ok(seen)
}

/// Returns the operations of a recording in the same form.
pub(crate) fn of_trace(operations: &[Value]) -> Vec<Seen> {
    let seen = operations.iter().map(|operation| {
        let text = |field: &str| operation[field].as_str().unwrap_or_default().to_owned();
        let result = operation["result"].as_i64().unwrap();
        let call = text("call");
        let result = match result {
            ..0 => errno(-result),
            _ if TRANSFERS.contains(&call.as_str()) => result.to_string(),
            _ => "ok".to_owned(),
        };
        Seen {
            path: real(&text("path")),
            to: second(&call, text("to")),
            result,
            call,
        }
    });
    seen.collect()
}

/// Returns the second path; the text of a symbolic link is none.
fn second(call: &str, path: String) -> String {
    if call.starts_with("symlink") {
        path
    } else {
        real(&path)
    }
}

/// Returns the name of an errno; of rare ones the number.
fn errno(number: i64) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc_number(rustix::io::Errno::NOENT), "ENOENT"),
        (libc_number(rustix::io::Errno::EXIST), "EEXIST"),
        (libc_number(rustix::io::Errno::ACCESS), "EACCES"),
        (libc_number(rustix::io::Errno::OPNOTSUPP), "EOPNOTSUPP"),
        (libc_number(rustix::io::Errno::NODATA), "ENODATA"),
        (libc_number(rustix::io::Errno::NOTDIR), "ENOTDIR"),
        (libc_number(rustix::io::Errno::INVAL), "EINVAL"),
        (libc_number(rustix::io::Errno::XDEV), "EXDEV"),
        (libc_number(rustix::io::Errno::NOTTY), "ENOTTY"),
        (libc_number(rustix::io::Errno::AGAIN), "EAGAIN"),
        (libc_number(rustix::io::Errno::SPIPE), "ESPIPE"),
        (libc_number(rustix::io::Errno::PERM), "EPERM"),
        (libc_number(rustix::io::Errno::BADF), "EBADF"),
    ];
    let found = NAMES.iter().find(|(known, _)| i64::from(*known) == number);
    found.map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}

const fn libc_number(errno: rustix::io::Errno) -> i32 {
    errno.raw_os_error()
}

/// Parses `name(arguments) = result`; `None` for what is no operation on a file.
fn parse(line: &str, cwd: &mut String) -> Option<Seen> {
    let (call, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = split(arguments.trim_end().strip_suffix(')')?);
    if OTHERS.contains(&call) {
        return None;
    }
    if call == "ioctl" && !arguments.get(1)?.contains("FICLONE") {
        return None;
    }
    if call == "fcntl" && !arguments.get(1)?.contains("SETLK") {
        return None;
    }
    let mut paths = paths(call, &arguments, cwd);
    if call == "ioctl" {
        // strace does not name the source.
        paths.clear();
    } else if paths.is_empty() {
        return None;
    }
    if matches!(call, "symlink" | "symlinkat" | "sendfile") {
        paths.reverse();
    }
    let mut words = result.split_whitespace();
    let first = words.next()?;
    let result = match first {
        "-1" => words.next()?.to_owned(),
        number if TRANSFERS.contains(&call) => number.to_owned(),
        _ => "ok".to_owned(),
    };
    if matches!(call, "chdir" | "fchdir") && result == "ok" {
        paths[0].clone_into(cwd);
    }
    let mut paths = paths.into_iter();
    Some(Seen {
        call: call.to_owned(),
        path: paths.next().map_or_else(String::new, |path| real(&path)),
        to: second(call, paths.next().unwrap_or_default()),
        result,
    })
}

/// Returns the paths of a call: one, or two where it has two.
fn paths(call: &str, arguments: &[String], cwd: &mut String) -> Vec<String> {
    let has_two = ["rename", "link", "symlink", "copy_file_range", "sendfile"]
        .iter()
        .any(|name| call.starts_with(name));
    let mut found = Vec::new();
    let mut base: Option<String> = None;
    for argument in arguments {
        if let Some(text) = quoted(argument) {
            let folder = base.take();
            if text.is_empty() && folder.is_none() {
                // What a socket or pipe transfers.
                continue;
            }
            if call.starts_with("symlink") && found.is_empty() {
                found.push(text.to_owned());
                continue;
            }
            found.push(join(folder.as_deref().unwrap_or(cwd), text));
        } else if let Some(path) = of_descriptor(argument) {
            found.extend(base.take());
            if argument.starts_with("AT_FDCWD") {
                path.clone_into(cwd);
            }
            base = Some(path.to_owned());
        } else {
            found.extend(base.take());
        }
        if found.len() == if has_two { 2 } else { 1 } {
            return found;
        }
    }
    found.extend(base);
    found
}

/// Returns the text of `"…"`, without the folder's own path, which is empty.
fn quoted(argument: &str) -> Option<&str> {
    argument
        .strip_prefix('"')?
        .trim_end_matches("...")
        .strip_suffix('"')
}

/// Returns the path in `3</path>`.
fn of_descriptor(argument: &str) -> Option<&str> {
    let (number, path) = argument.split_once('<')?;
    let is_descriptor = number == "AT_FDCWD" || number.parse::<i32>().is_ok();
    let path = path.strip_suffix("(deleted)").unwrap_or(path).strip_suffix('>')?;
    (is_descriptor && path.starts_with('/')).then_some(path)
}

/// Splits at the commas between arguments.
fn split(arguments: &str) -> Vec<String> {
    let (mut found, mut current) = (Vec::new(), String::new());
    let (mut depth, mut is_text) = (0, false);
    let mut before = ' ';
    for c in arguments.chars() {
        match c {
            '"' if before != '\\' => is_text = !is_text,
            '[' | '{' | '<' if !is_text => depth += 1,
            ']' | '}' | '>' if !is_text => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 && !is_text {
            found.push(std::mem::take(&mut current).trim().to_owned());
        } else {
            current.push(c);
        }
        before = c;
    }
    found.push(current.trim().to_owned());
    found
}

fn join(folder: &str, path: &str) -> String {
    let joined = if path.starts_with('/') {
        path.to_owned()
    } else {
        format!("{folder}/{path}")
    };
    let parts: Vec<&str> = joined
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    format!("/{}", parts.join("/"))
}

/// Returns the path without symbolic links: strace names descriptors by their files, not by the paths that were opened.
fn real(path: &str) -> String {
    if path.is_empty() {
        return String::new();
    }
    let given = PathBuf::from(path);
    let found = given
        .canonicalize()
        .or_else(|error| match (given.parent(), given.file_name()) {
            (Some(folder), Some(name)) => folder.canonicalize().map(|folder| folder.join(name)),
            _ => Err(error),
        });
    found.map_or_else(|_| path.to_owned(), |found| found.to_string_lossy().into_owned())
}

/// Asserts that both lists have the same operations, in the same order if `in_order`.
#[track_caller]
pub(crate) fn assert_same(ours: &[Seen], theirs: &[Seen], in_order: bool) {
    let sorted = |list: &[Seen]| {
        let mut list = list.to_vec();
        // Standard output goes elsewhere.
        list.retain(|seen| seen.path != "/dev/null" && !seen.path.contains("/.out/"));
        if !in_order {
            list.sort();
            // rsync sets a time twice if its processes come in another order.
            list.dedup_by(|one, two| one == two && one.call == "utimensat");
        }
        list
    };
    let (ours, theirs) = (sorted(ours), sorted(theirs));
    if ours == theirs {
        return;
    }
    let lacks = |list: &[Seen], other: &[Seen]| -> Vec<Seen> {
        let mut rest = other.to_vec();
        let mut is_missing = |seen: &&Seen| match rest.iter().position(|one| one == *seen) {
            Some(place) => {
                rest.swap_remove(place);
                false
            }
            None => true,
        };
        list.iter()
            .filter(|seen| is_missing(seen))
            .take(20)
            .cloned()
            .collect()
    };
    panic!(
        "{} operations, strace has {}\nonly recorded: {:#?}\nonly strace: {:#?}",
        ours.len(),
        theirs.len(),
        lacks(&ours, &theirs),
        lacks(&theirs, &ours)
    );
}
