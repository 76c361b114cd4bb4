//! A private `ropeway serve`, and the contents that a client must see of its folder.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::{Finished, PASSWORD, Place, Run, Running, file, walk, write_at};

/// A server with the share `data` in a private place, and the user `ann`. It ends before its
/// folders are removed.
pub(crate) struct Served {
    server: Option<Running>,
    address: SocketAddr,
    pub(crate) place: Place,
}

impl Served {
    /// Starts it with more flags of `serve`.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let place = Place::in_memory();
        let data = place.folder("data");
        Self::serving(place, &data, flags)
    }

    /// With the share `data` made of a folder that lies anywhere.
    pub(crate) fn serving(place: Place, data: &Path, flags: &[&str]) -> Self {
        let secret = place.join(".password");
        fs::write(&secret, format!("{PASSWORD}\n")).unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let mut share = std::ffi::OsString::from("data=");
        share.push(data);
        let mut server = place
            .ropeway("serve")
            .args(["--listen", "127.0.0.1:0", "--user", "ann", "--password-file"])
            .arg(&secret)
            .args(flags)
            .arg(share)
            .hang_after(Duration::from_secs(30))
            .start();
        let listens = server.until(|server| address(&server.stdout()).is_some());
        let address = address(&server.stdout());
        assert!(
            listens,
            "it does not listen: {}{}",
            server.stdout(),
            server.stderr()
        );
        Self {
            server: Some(server),
            address: address.unwrap(),
            place,
        }
    }

    /// Returns the process number of the server.
    pub(crate) fn id(&self) -> u32 {
        self.server.as_ref().map_or(0, Running::id)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of its web page, for which it must have `--http`.
    pub(crate) fn page(&self) -> String {
        let found = || {
            let out = self.server.as_ref()?.stdout();
            let line = out.lines().find_map(|line| line.strip_prefix("page: "))?;
            // It is followed by another one when it is complete.
            out.contains("metrics: ").then(|| line.to_owned())
        };
        let mut url = None;
        super::wait_until(Duration::from_secs(30), || {
            url = found();
            url.is_some()
        });
        url.unwrap()
    }

    /// Returns the share's folder, or a path in it.
    pub(crate) fn behind(&self, path: &str) -> PathBuf {
        self.place.join("data").join(path)
    }

    /// Returns the share's URL, or that of a path on it.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("smb://ann@{}/data/{path}", self.address)
    }

    /// Prepares the binary with a command and the password.
    pub(crate) fn run(&self, command: &str) -> Run {
        self.place.ropeway(command).env("ROPEWAY_PASSWORD", PASSWORD)
    }

    /// The same, run by another program: `before` and its arguments.
    pub(crate) fn run_by(&self, before: &[&str], command: &str) -> Run {
        let run = self.place.ropeway_by(before, command);
        run.env("ROPEWAY_PASSWORD", PASSWORD)
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.kill();
        }
    }

    /// Stops it as systemd does; it must succeed and must not have panicked.
    #[track_caller]
    pub(crate) fn stop(mut self) -> Finished {
        let server = self.server.take().unwrap();
        server.signal(Signal::TERM);
        let finished = server.wait();
        finished.assert_code(&[0]);
        finished
    }
}

/// Finds the address in a complete line such as `smb://ann@127.0.0.1:4450/data`.
/// Writes the login of the user to a file that nobody else may read, and returns its path.
pub(crate) fn credentials(path: &Path) -> String {
    fs::write(path, format!("username=ann\npassword={PASSWORD}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    path.display().to_string()
}

fn address(text: &str) -> Option<SocketAddr> {
    let whole = &text[..=text.rfind('\n')?];
    let place = whole.lines().find_map(|line| line.strip_prefix("smb://ann@"))?;
    place.split('/').next()?.parse().ok()
}

/// Returns the name that a client sees: characters that Windows forbids are mapped to private ones,
/// as Services for Macintosh does, and bytes that are not UTF-8 to U+EF80 and up.
pub(crate) fn seen_name(name: &[u8]) -> String {
    const FORBIDDEN: &str = "\"*:<>?\\|";
    let private = |code: usize| char::from_u32(0xF000 + u32::try_from(code).unwrap()).unwrap();
    let mut seen = String::new();
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            seen.push(match FORBIDDEN.find(c) {
                Some(at) => private(0x20 + at),
                None if u32::from(c) < 0x20 => private(c as usize),
                None => c,
            });
        }
        for byte in chunk.invalid() {
            seen.push(char::from_u32(0xEF00 + u32::from(*byte)).unwrap());
        }
    }
    let end = match seen.pop() {
        Some(' ') => private(0x28),
        Some('.') => private(0x29),
        Some(other) => other,
        None => return seen,
    };
    seen.push(end);
    seen
}

/// Returns the nodes below a folder by the paths that clients see, with the sizes of files.
pub(crate) fn seen_listing(root: &Path) -> BTreeMap<String, Option<u64>> {
    let nodes = walk(root).into_iter().map(|path| {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let size = metadata.is_file().then_some(metadata.len());
        (seen_path(path.strip_prefix(root).unwrap()), size)
    });
    nodes.collect()
}

fn seen_path(path: &Path) -> String {
    let names: Vec<String> = path.iter().map(|name| seen_name(name.as_bytes())).collect();
    names.join("/")
}

/// Asserts that `near`, made by a client, has the contents of the folder `disk` under the names
/// that clients see.
#[track_caller]
pub(crate) fn same_as_seen(disk: &Path, near: &Path) {
    let mut copies = BTreeMap::new();
    let plain: BTreeMap<String, Option<u64>> = walk(near)
        .into_iter()
        .map(|path| {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let below = path.strip_prefix(near).unwrap();
            // Our own client restores bytes that are not UTF-8.
            let shown = below.to_str().map_or_else(|| seen_path(below), str::to_owned);
            copies.insert(shown.clone(), path.clone());
            (shown, metadata.is_file().then_some(metadata.len()))
        })
        .collect();
    assert_listing(&seen_listing(disk), &plain);
    for path in walk(disk).iter().filter(|path| path.is_file()) {
        let below = path.strip_prefix(disk).unwrap();
        let copy = copies.get(&seen_path(below)).unwrap();
        assert!(
            fs::read(path).unwrap() == fs::read(copy).unwrap(),
            "{} differs",
            copy.display()
        );
    }
}

/// Asserts that two listings are equal; prints only differences.
#[track_caller]
pub(crate) fn assert_listing(wanted: &BTreeMap<String, Option<u64>>, found: &BTreeMap<String, Option<u64>>) {
    let missing: Vec<_> = wanted
        .iter()
        .filter(|(path, size)| found.get(*path) != Some(*size))
        .collect();
    let surplus: Vec<_> = found
        .iter()
        .filter(|(path, size)| wanted.get(*path) != Some(*size))
        .collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "on the disk and not so with the client: {missing:?}\nwith the client and not so on the disk: {surplus:?}"
    );
}

/// Makes a deep tree of files and folders with odd but legal names, holes, and sizes from 0 to some
/// MiB.
pub(crate) fn odd_tree(root: &Path) {
    fs::create_dir_all(root).unwrap();
    let mut wide = "ü".repeat(127).into_bytes();
    wide.push(b'!');
    let names: &[&[u8]] = &[
        b"plain.txt",
        b" leading",
        b"trailing ",
        b"two  spaces",
        b" ",
        b"trailing dot.",
        b"...",
        b".hidden",
        b"~",
        b"#",
        b"new\nline",
        b"tab\t",
        b"\x01\x1f\x7f",
        b"\xff\xfe not utf-8 \x80",
        b"caf\xc3\xa9",
        b"cafe\xcc\x81",
        "🚡 ropeway 🏔️".as_bytes(),
        "ｆｕｌｌ ｗｉｄｔｈ：？".as_bytes(),
        "日本語 עברית".as_bytes(),
        b"-rf",
        b"$HOME",
        b"`id`",
        b"a;b",
        b"a&b",
        b"a|b",
        b"*",
        b"?.*",
        b"[a]",
        b"{a,b}",
        b"!",
        b"a\\b",
        b"it's",
        b"say \"x\"",
        b"%s%n",
        b"%20",
        b"a:b",
        b"file:stream:$DATA",
        b"<>",
        b"NUL.txt",
        b"con",
        b"COM1",
        b"8.3~1.TXT",
        &[b'n'; 255],
        &wide,
    ];
    let sizes = [0, 1, 511, 4_096, 65_536, 65_537, 100_000];
    let folders = root.join("folders");
    fs::create_dir(&folders).unwrap();
    for (number, name) in names.iter().enumerate() {
        let name = super::name_bytes(name);
        file(&root.join(name), sizes[number % sizes.len()], number as u64);
        fs::create_dir(folders.join(name)).unwrap();
        fs::write(folders.join(name).join(name), format!("inside {number}")).unwrap();
    }
    fs::create_dir(root.join("empty folder")).unwrap();
    file(&root.join("some MiB"), (5 << 20) + 17, 1);
    let holes = root.join("holes");
    fs::File::create(&holes).unwrap().set_len(3 << 20).unwrap();
    write_at(&holes, (1 << 20) + 5, b"in the middle");
    let mut deep = root.join("deep");
    // Stays below smbclient's limit for paths, 1,024 bytes.
    for level in 0..12 {
        deep.push(format!("{level}{}", "p".repeat(60)));
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("bottom"), "at the bottom").unwrap();
}

/// Makes files whose names differ only in case: all clients can read them, but none can create
/// them.
pub(crate) fn case_twins(root: &Path) {
    fs::create_dir_all(root).unwrap();
    for name in ["Case", "case", "CASE", "straße", "STRASSE", "Ärger", "ärger"] {
        fs::write(root.join(name), format!("this is {name}")).unwrap();
    }
}
