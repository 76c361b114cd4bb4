//! What a share keeps beside content: access lists, extended attributes, streams, times, attributes, links, holes and
//! names, with the real binary against a private smbd. What is lost is named.

#![allow(clippy::unwrap_used, reason = "a failed set-up fails the test")]

mod support;

use std::fs;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ropeway_peers::{PeerError, Share, Smbd, or_skip};
use ropeway_smb_proto::wire::security::SecurityDescriptor;
use serde_json::Value;
use support::{Finished, Place, Run, Volume, is_root, patterned, skip, text, tool};

const PASSWORD: &str = "correct horse";

/// A private smbd with some shares, and a place for the runs.
struct Ground {
    place: Place,
    smbd: Smbd,
    /// Where it answers at the usual port, for smbcacls.
    usual: String,
}

impl Ground {
    /// `change` makes a share of each of these names what it is to be.
    fn start(names: &[&str], change: impl Fn(&str, Share) -> Share) -> Result<Self, PeerError> {
        let place = Place::new();
        let folder = place.path().to_owned();
        Self::start_in(place, names, &folder, change)
    }

    /// With the shares' folders in this one.
    fn start_at(
        names: &[&str],
        folder: &Path,
        change: impl Fn(&str, Share) -> Share,
    ) -> Result<Self, PeerError> {
        Self::start_in(Place::new(), names, folder, change)
    }

    fn start_in(
        place: Place,
        names: &[&str],
        folder: &Path,
        change: impl Fn(&str, Share) -> Share,
    ) -> Result<Self, PeerError> {
        let share = |name: &&str| {
            fs::create_dir_all(folder.join(name)).unwrap();
            change(name, Share::new(name, &folder.join(name)))
        };
        let builder = Smbd::builder().user("ann", PASSWORD);
        let builder = names
            .iter()
            .map(share)
            .fold(builder, |builder, share| builder.share(share));
        let smbd = builder.start()?;
        let usual = at_the_usual_port(smbd.address()).map_or_else(|_| String::new(), |ip| ip.to_string());
        Ok(Self { place, smbd, usual })
    }

    fn url(&self, path: &str) -> String {
        self.smbd.url(path)
    }

    /// Where a path of a share lies on this machine.
    fn behind(&self, path: &str) -> PathBuf {
        self.place.join(path)
    }

    fn run(&self, command: &str) -> Run {
        self.place.ropeway(command).env("ROPEWAY_PASSWORD", PASSWORD)
    }

    fn copy(&self, flags: &[&str], from: &str, to: &str) -> Finished {
        let run = self.run("copy").args(["--json", "-T"]).args(flags);
        let finished = run.args([from, to]).ok();
        assert_eq!(finished.number("errors"), 0, "{finished}");
        finished
    }

    fn stat(&self, place: &str) -> Value {
        let finished = self.run("stat").arg("--json").arg(place).ok();
        finished.of_type("node").remove(0)
    }

    /// What Samba's own tool says of a node's security descriptor, after an action.
    fn smbcacls(&self, share: &str, path: &str, action: &[&str]) -> String {
        let output = Command::new("timeout")
            .args(["60", "smbcacls"])
            .args(["--configfile", "/dev/null", "--sddl", "--authentication-file"])
            .arg(self.smbd.credentials().unwrap())
            .args([format!("//{}/{share}", self.usual), path.to_owned()])
            .args(action)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "smbcacls {share}/{path}: {said}{complaint}"
        );
        said.trim().to_owned()
    }
}

/// An address at whose port 445, the only one that smbcacls knows, a server answers that listens elsewhere (as root).
fn at_the_usual_port(server: SocketAddr) -> std::io::Result<IpAddr> {
    let [high, low] = server.port().to_be_bytes();
    let address = IpAddr::from([127, high, low, 9]);
    let listener = TcpListener::bind((address, 445))?;
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else {
                return;
            };
            for (mut from, mut to) in [(&client, &server), (&server, &client)]
                .map(|(from, to)| (from.try_clone().unwrap(), to.try_clone().unwrap()))
            {
                std::thread::spawn(move || {
                    _ = std::io::copy(&mut from, &mut to);
                    _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    Ok(address)
}

/// Losses of a copy by name; 0 where none is told.
#[track_caller]
fn lost(finished: &Finished, name: &str) -> u64 {
    finished.summary()["losses"][name].as_u64().unwrap_or(0)
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let length = rustix::fs::lgetxattr(path, name, &mut buffer[..]).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

/// Whether files may have extended attributes in the folder for temporary files.
fn has_xattrs(place: &Place) -> bool {
    let path = place.join("probe");
    text(&path, "");
    rustix::fs::setxattr(&path, "user.probe", b"x", rustix::fs::XattrFlags::empty()).is_ok()
}

/// Owners that no user of the tests is, a DACL that does not inherit, with a denial; in the order in which smbcacls puts
/// entries, and as this program spells it.
const OWN: [&str; 2] = [
    "O:S-1-22-1-1G:S-1-22-2-2D:P(D;;0x2;;;S-1-22-2-7)(A;;0x1200a9;;;WD)(A;;0x1f01ff;;;S-1-22-1-1)(A;;0x1f01ff;;;BA)",
    "O:S-1-22-1-1G:S-1-22-2-2D:P(D;;DC;;;S-1-22-2-7)(A;;0x1200a9;;;WD)(A;;FA;;;S-1-22-1-1)(A;;FA;;;BA)",
];
/// One that is inherited.
const FOLDERS: &str =
    "O:BAG:S-1-22-2-1D:PAI(A;CI;0x1200a9;;;WD)(A;OICI;0x1f01ff;;;BA)(A;OICIIO;0x1301bf;;;CO)";

#[test]
fn access_lists_go_from_share_to_share_and_through_this_machine() {
    if !is_root() || support::program("smbcacls").is_none() {
        skip!("needs root and smbcacls");
    }
    let ground = or_skip!(Ground::start(
        &["data", "more", "plain"],
        |name, share| match name {
            "plain" => share,
            _ => share.acls(),
        }
    ));
    if !has_xattrs(&ground.place) {
        skip!("no extended attributes below the folder for temporary files");
    }
    fs::create_dir_all(ground.behind("data/tree/sub")).unwrap();
    patterned(&ground.behind("data/tree/small"), 3000);
    patterned(&ground.behind("data/tree/sub/large"), 6 << 20);
    text(&ground.behind("data/tree/other"), "as the folder says");
    for (path, sddl) in [
        ("tree/small", OWN[0]),
        ("tree/sub/large", OWN[0]),
        ("tree/sub", FOLDERS),
    ] {
        ground.smbcacls("data", path, &["-S", sddl]);
    }
    let nodes = ["", "/small", "/other", "/sub", "/sub/large"];
    let of = |share: &str, at: &str| -> Vec<String> {
        let path = |node| format!("{at}{node}");
        nodes
            .iter()
            .map(|node| ground.smbcacls(share, &path(node), &[]))
            .collect()
    };
    let before = of("data", "tree");
    let told = |at: &str| -> Vec<String> {
        let stat = |node| ground.stat(&format!("{at}{node}"));
        nodes
            .iter()
            .map(|node| stat(node)["sddl"].as_str().unwrap().to_owned())
            .collect()
    };
    let before_told = told(&ground.url("data/tree"));
    // Samba's tool and this program say the same; the one writes rights as numbers.
    let meaning = |sddl: &String| SecurityDescriptor::from_sddl(sddl).unwrap();
    let both = before.iter().map(meaning).zip(before_told.iter().map(meaning));
    both.for_each(|(one, other)| assert_eq!(one, other));
    assert_eq!(before_told[1], OWN[1]);
    let copied = ground.copy(&["--acls"], &ground.url("data/tree"), &ground.url("more/tree"));
    assert_eq!(of("more", "tree"), before);
    assert_eq!(told(&ground.url("more/tree")), before_told);
    assert_eq!((lost(&copied, "acl"), lost(&copied, "owner")), (0, 0), "{copied}");
    // By way of this machine.
    let here = ground.place.join("here");
    let here_text = here.to_str().unwrap();
    let down = ground.copy(&["--acls"], &ground.url("more/tree"), here_text);
    assert_eq!(lost(&down, "acl"), 0, "{down}");
    for (node, said) in nodes.iter().zip(&before_told) {
        let at = here.join(node.trim_start_matches('/'));
        let kept = xattr(&at, "user.ropeway.sddl").unwrap();
        assert_eq!(String::from_utf8(kept).unwrap(), said.as_str(), "{node}");
        assert_eq!(
            ground.stat(at.to_str().unwrap())["sddl"].as_str(),
            Some(said.as_str())
        );
    }
    let up = ground.copy(&["--acls"], here_text, &ground.url("data/again"));
    assert_eq!(of("data", "again"), before);
    assert_eq!(lost(&up, "acl"), 0, "{up}");
    // A second run has nothing to do.
    let again = ground.copy(&["--acls"], here_text, &ground.url("data/again"));
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
    // Without the flag nothing of it is kept, nor passed off as an attribute of another kind.
    let without = ground.copy(&[], here_text, &ground.url("data/without"));
    assert_eq!(lost(&without, "acl"), 5, "{without}");
    assert_ne!(told(&ground.url("data/without"))[1], OWN[1]);
    assert_eq!(
        ground.stat(&ground.url("data/without/small"))["xattrs"],
        Value::Null
    );
    // A share that makes of a list what its file system can hold does not say so; it is told all the same.
    let poor = ground.copy(&["--acls"], &ground.url("data/tree"), &ground.url("plain/tree"));
    assert!(lost(&poor, "acl") >= 3, "{poor}");
    assert!(poor.number("files") == 3);
}

#[test]
fn extended_attributes_go_both_ways() {
    let ground = or_skip!(Ground::start(&["data", "more", "without"], |name, share| {
        share.ea_support(name != "without")
    }));
    if !has_xattrs(&ground.place) {
        skip!("no extended attributes below the folder for temporary files");
    }
    let source = ground.place.folder("source");
    fs::create_dir(source.join("sub")).unwrap();
    patterned(&source.join("small"), 5000);
    patterned(&source.join("sub/large"), 6 << 20);
    text(&source.join("none"), "no attributes");
    let long = vec![b'v'; 2000];
    let nodes = ["small", "sub", "sub/large"];
    for node in nodes {
        set_xattr(&source.join(node), "user.comment", node.as_bytes());
        set_xattr(&source.join(node), "user.Mixed.Case", b"\0\xff");
        set_xattr(&source.join(node), "user.long", &long);
    }
    let from = source.to_str().unwrap();
    let same = |at: &Path| {
        for node in nodes {
            assert_eq!(
                xattr(&at.join(node), "user.comment").as_deref(),
                Some(node.as_bytes())
            );
            assert_eq!(
                xattr(&at.join(node), "user.Mixed.Case").as_deref(),
                Some(&b"\0\xff"[..])
            );
            assert_eq!(xattr(&at.join(node), "user.long").as_ref(), Some(&long));
        }
        assert_eq!(xattr(&at.join("none"), "user.comment"), None);
    };
    let up = ground.copy(&[], from, &ground.url("data/tree"));
    same(&ground.behind("data/tree"));
    assert_eq!(lost(&up, "xattr"), 0, "{up}");
    let stat = ground.stat(&ground.url("data/tree/small"));
    assert_eq!(stat["xattrs"].as_array().unwrap().len(), 3, "{stat}");
    ground.copy(&[], &ground.url("data/tree"), &ground.url("more/tree"));
    same(&ground.behind("more/tree"));
    let back = ground.place.join("back");
    ground.copy(&[], &ground.url("more/tree"), back.to_str().unwrap());
    same(&back);

    // What does not fit is named; the rest is kept.
    let odd = ground.place.folder("odd");
    text(&odd.join("file"), "odd attributes");
    for (name, value) in [
        ("user.empty", &b""[..]),
        ("user.ä", b"x"),
        ("user.a:b", b"x"),
        ("user.fits", b"x"),
    ] {
        set_xattr(&odd.join("file"), name, value);
    }
    let finished = ground.copy(&[], odd.to_str().unwrap(), &ground.url("data/odd"));
    assert_eq!(lost(&finished, "xattr"), 3, "{finished}");
    assert_eq!(
        xattr(&ground.behind("data/odd/file"), "user.fits").as_deref(),
        Some(&b"x"[..])
    );
    // What the source no longer has goes.
    rustix::fs::removexattr(odd.join("file"), "user.fits").unwrap();
    set_xattr(&odd.join("file"), "user.newer", b"y");
    text(&odd.join("file"), "changed");
    ground.copy(&[], odd.to_str().unwrap(), &ground.url("data/odd"));
    assert_eq!(xattr(&ground.behind("data/odd/file"), "user.fits"), None);
    assert_eq!(
        xattr(&ground.behind("data/odd/file"), "user.newer").as_deref(),
        Some(&b"y"[..])
    );

    // A share without any: nothing fails, all are named.
    let finished = ground.copy(&[], from, &ground.url("without/tree"));
    assert!(lost(&finished, "xattr") >= 3, "{finished}");
    assert_eq!(finished.number("files"), 3, "{finished}");
    assert_eq!(xattr(&ground.behind("without/tree/small"), "user.comment"), None);
    let finished = ground.copy(&["--no-xattrs"], from, &ground.url("data/bare"));
    assert_eq!(
        (
            lost(&finished, "xattr"),
            xattr(&ground.behind("data/bare/small"), "user.comment")
        ),
        (0, None)
    );
}

/// Bytes of a file that lie where another file's do too, as the file system tells (fiemap's flag `shared`).
fn shared_bytes(path: &Path) -> u64 {
    let told = tool("filefrag", &["-v", "-b1", path.to_str().unwrap()]).unwrap();
    let extents = told.lines().filter(|line| line.contains("shared"));
    extents
        .map(|line| line.split(':').nth(3).unwrap().trim().parse::<u64>().unwrap())
        .sum()
}

#[test]
fn content_is_shared_inside_a_server_that_can() {
    let volume = support::or_skip!(Volume::btrfs());
    if !Path::new("/usr/lib/x86_64-linux-gnu/samba/vfs/btrfs.so").exists()
        || support::program("filefrag").is_none()
    {
        skip!("needs Samba's module btrfs and filefrag");
    }
    let ground = or_skip!(Ground::start_at(&["data", "more"], &volume.root(), |_, share| {
        share.module("btrfs")
    }));
    let behind = |path: &str| volume.join(path);
    let sizes = [
        ("aligned", 8 << 20),
        ("tail", (5 << 20) + 1234),
        ("middling", 300_001),
        ("small", 5000),
    ];
    fs::create_dir(behind("data/tree")).unwrap();
    for (name, size) in sizes {
        patterned(&behind("data/tree").join(name), size);
    }
    let holes = fs::File::create(behind("data/tree/holes")).unwrap();
    holes.set_len(8 << 20).unwrap();
    support::write_at(&behind("data/tree/holes"), 4 << 20, &[7; 1 << 20]);
    drop(holes);
    // Extents are seen when they are on the disk.
    tool("sync", &["-f".as_ref(), volume.root().as_os_str()]).unwrap();
    for (from, to) in [("data/tree", "data/copy"), ("data/tree", "more/copy")] {
        let copied = ground.copy(&[], &ground.url(from), &ground.url(to));
        assert_eq!(copied.number("files"), 5, "{copied}");
        assert_eq!(
            copied.number("bytes_sent"),
            5000,
            "what is small is carried: {copied}"
        );
        support::content_same(&behind(from), &behind(to));
        tool("sync", &["-f".as_ref(), volume.root().as_os_str()]).unwrap();
        for (name, size) in sizes.into_iter().take(3) {
            let shared = shared_bytes(&behind(to).join(name));
            assert!(shared >= size, "{to}/{name}: {shared} of {size} are shared");
        }
        assert!(shared_bytes(&behind(to).join("holes")) >= 1 << 20);
        assert!(fs::metadata(behind(to).join("holes")).unwrap().blocks() * 512 < 4 << 20);
    }
    // Where it cannot be shared, the server copies; where content is to be verified, it has to be seen.
    let verified = ground.copy(
        &["--verify"],
        &ground.url("data/tree"),
        &ground.url("data/verified"),
    );
    assert!(verified.number("bytes_sent") > 13 << 20, "{verified}");
    support::content_same(&behind("data/tree"), &behind("data/verified"));
}

#[test]
fn a_server_without_shared_content_copies_by_itself() {
    let ground = or_skip!(Ground::start(&["data", "more"], |_, share| share));
    fs::create_dir(ground.behind("data/tree")).unwrap();
    patterned(&ground.behind("data/tree/large"), (20 << 20) + 77);
    patterned(&ground.behind("data/tree/middling"), 300_001);
    let copied = ground.copy(&[], &ground.url("data/tree"), &ground.url("more/copy"));
    assert_eq!(copied.number("bytes_sent"), 0, "{copied}");
    support::content_same(&ground.behind("data/tree"), &ground.behind("more/copy"));
}
