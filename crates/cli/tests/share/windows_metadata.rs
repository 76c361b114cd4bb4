//! One format on the disk: a folder means the same to smbd, to `ropeway serve` and to a copy.
//!
//! With the real binary against a private smbd. What is compared is what each server says to a client: security
//! descriptor, DOS attributes, streams, creation and modification time, names.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;

use crate::support::{
    self, Ground, PASSWORD, Served, at_the_usual_port, has_xattrs, is_root, lost, patterned, set_xattr, skip,
    text, walk, xattr,
};
use ropeway_peers::{Share, or_skip};
use serde_json::Value;

/// DACLs by which everybody may do anything: what is tested is the format, not the decision.
const OPEN: &str = "D:P(A;OICI;0x1f01ff;;;WD)(A;;0x1200a9;;;BA)";
const OTHER: &str = "D:P(A;;0x1f01ff;;;WD)(A;;0x1f01ff;;;S-1-22-1-7)";
/// Owner and group that no user of the tests is; only smbd lets its administrator give them.
const OWNERS: &str = "O:S-1-22-1-1G:S-1-22-2-2";

/// A server as a client of Samba reaches it.
struct Client {
    address: SocketAddr,
    usual: IpAddr,
    login: std::path::PathBuf,
}

impl Client {
    fn new(address: SocketAddr, place: &support::Place) -> Self {
        let login = place.join(".login");
        fs::write(&login, format!("username = ann\npassword = {PASSWORD}\n")).unwrap();
        Self {
            address,
            usual: at_the_usual_port(address).unwrap(),
            login,
        }
    }

    #[track_caller]
    fn output(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{command:?}: {said}");
        said.trim().to_owned()
    }

    /// Commands of smbclient on a share.
    #[track_caller]
    fn smbclient(&self, share: &str, commands: &[&str]) {
        let mut command = Command::new("timeout");
        command
            .args(["60", "smbclient", "--configfile", "/dev/null", "--port"])
            .arg(self.address.port().to_string())
            .arg("--authentication-file")
            .arg(&self.login)
            .arg(format!("//{}/{share}", self.address.ip()))
            .args(["--command", &commands.join(";")]);
        self.output(&mut command);
    }

    /// The security descriptor of a node as smbcacls prints it, after an action.
    #[track_caller]
    fn smbcacls(&self, share: &str, path: &str, action: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command
            .args(["60", "smbcacls", "--configfile", "/dev/null", "--sddl"])
            // Without it, smbcacls 4.17 crashes at servers that belong to no domain.
            .arg("--domain-sid=S-1-5-21-1-2-3")
            .arg("--authentication-file")
            .arg(&self.login)
            .args([format!("//{}/{share}", self.usual), path.to_owned()])
            .args(action);
        self.output(&mut command)
    }
}

/// What a client sees of the nodes below a URL: descriptor, attributes, streams, times.
fn seen(ground: &Ground, url: &str, nodes: &[String]) -> BTreeMap<String, Vec<Value>> {
    let fields = [
        "sddl",
        "dos_attributes",
        "streams",
        "created",
        "modified",
        "xattrs",
    ];
    let of = |node: &String| {
        let stat = ground.stat(&format!("{url}/{node}"));
        (node.clone(), fields.map(|field| stat[field].clone()).to_vec())
    };
    nodes.iter().map(of).collect()
}

/// The nodes below a folder.
fn nodes(root: &Path) -> Vec<String> {
    let name = |path: &std::path::PathBuf| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    let mut nodes: Vec<String> = walk(root).iter().map(name).collect();
    nodes.sort();
    nodes
}

/// Fills `share` through a server; `owners` stands before the DACLs.
fn fill(client: &Client, ground: &Ground, share: &str, owners: &str) {
    let small = ground.place.join(".small");
    text(&small, "content");
    let large = ground.place.join(".large");
    patterned(&large, (3 << 20) + 5);
    let (small, large) = (small.display(), large.display());
    client.smbclient(share, &["mkdir tree"]);
    client.smbcacls(share, "tree", &["-S", &format!("{owners}{OPEN}")]);
    client.smbclient(
        share,
        &[
            "mkdir \"tree\\Ünder Größe\"",
            &format!("put {small} \"tree\\Mixed Case.TXT\""),
            &format!("put {large} \"tree\\Ünder Größe\\large\""),
            &format!("put {small} tree\\.dot"),
            &format!("put {small} tree\\plain"),
            &format!("put {small} \"tree\\Mixed Case.TXT:Zone.Identifier\""),
            &format!("put {small} \"tree\\Ünder Größe:note\""),
            "setmode \"tree\\Mixed Case.TXT\" +hs",
            "setmode \"tree\\Ünder Größe\" +h",
            "setmode \"tree\\Ünder Größe\\large\" +r",
            "utimes \"tree\\Mixed Case.TXT\" 2001:02:03-04:05:06 -1 2011:02:03-04:05:06 -1",
            "utimes \"tree\\Ünder Größe\\large\" 2002:02:03-04:05:06 -1 2012:02:03-04:05:06 -1",
            "utimes \"tree\\Ünder Größe\" 2003:02:03-04:05:06 -1 2013:02:03-04:05:06 -1",
        ],
    );
    client.smbcacls(share, "tree/Mixed Case.TXT", &["-S", &format!("{owners}{OTHER}")]);
}

fn ground(ignores_posix: bool) -> Result<Ground, ropeway_peers::PeerError> {
    Ground::with_shares(&["data", "more"], |_, share: Share| {
        let share = share.acls().streams();
        match ignores_posix {
            true => share.option("acl_xattr:ignore system acls", "yes"),
            false => share,
        }
    })
}

macro_rules! ground_or_skip {
    ($ignores_posix:expr) => {{
        if !is_root() || support::program("smbcacls").is_none() || support::program("smbclient").is_none() {
            skip!("needs root, smbclient and smbcacls");
        }
        let ground = or_skip!(ground($ignores_posix));
        if !has_xattrs(&ground.place) {
            skip!("no extended attributes below the folder for temporary files");
        }
        ground
    }};
}

#[test]
fn metadata_survives_share_to_folder_to_serve_to_share() {
    let ground = ground_or_skip!(true);
    let client = Client::new(ground.smbd.address(), &ground.place);
    fill(&client, &ground, "data", OWNERS);
    let here = ground.place.folder("here");
    let down = ground.copied(
        &["--acls"],
        &ground.url("data/tree"),
        here.join("tree").to_str().unwrap(),
    );
    let served = Served::serving(support::Place::new(), &here, &[]);
    let up = ground.copied(&["--acls"], &served.url("tree"), &ground.url("more/tree"));
    for finished in [&down, &up] {
        for loss in [
            "acl",
            "owner",
            "stream",
            "dos_attributes",
            "created_time",
            "times",
            "xattr",
        ] {
            assert_eq!(lost(finished, loss), 0, "{loss}: {finished}");
        }
    }
    let all = nodes(&ground.behind("data/tree"));
    assert_eq!(all.len(), 5);
    assert_eq!(nodes(&ground.behind("more/tree")), all);
    let before = seen(&ground, &ground.url("data/tree"), &all);
    assert_eq!(seen(&ground, &served.url("tree"), &all), before);
    assert_eq!(seen(&ground, &ground.url("more/tree"), &all), before);
    for node in all
        .iter()
        .map(|node| format!("tree/{node}"))
        .chain(["tree".to_owned()])
    {
        assert_eq!(
            client.smbcacls("more", &node, &[]),
            client.smbcacls("data", &node, &[]),
            "{node}"
        );
    }
    served.stop();
}

/// Fills a folder through one server, reads and changes it through the other, and reads it through the first again.
fn by_turns(ground: &Ground, first: &Client, second: &Client, (one, two): (&str, &str)) {
    fill(first, ground, "data", "");
    let all = nodes(&ground.behind("data/tree"));
    let both = |what: &str| {
        let (one, two) = (seen(ground, one, &all), seen(ground, two, &all));
        assert_eq!(one, two, "{what}");
        one
    };
    let before = both("as filled");
    let name = "tree/Mixed Case.TXT";
    assert_eq!(
        second.smbcacls("data", name, &[]),
        first.smbcacls("data", name, &[])
    );
    let small = ground.place.join(".small");
    let other = ground.place.join(".other");
    text(&other, "another content");
    second.smbcacls("data", name, &["-S", OPEN]);
    second.smbclient(
        "data",
        &[
            "setmode \"tree\\Mixed Case.TXT\" -h+r",
            &format!("put {} \"tree\\.dot:added\"", small.display()),
            &format!("put {} \"tree\\Ünder Größe:more\"", other.display()),
            "utimes \"tree\\.dot\" 2004:02:03-04:05:06 -1 2014:02:03-04:05:06 -1",
        ],
    );
    let after = both("as changed");
    for node in ["Mixed Case.TXT", ".dot", "Ünder Größe"] {
        assert_ne!(before[node], after[node], "{node}");
    }
    assert_eq!(after["Mixed Case.TXT"][1].as_u64().unwrap() & 0x7, 0x5);
    assert!(after[".dot"][3].as_str().unwrap().starts_with("2004"));
    assert_eq!(
        first.smbcacls("data", name, &[]),
        second.smbcacls("data", name, &[])
    );
    assert!(
        first.smbcacls("data", name, &[]).contains("OICI"),
        "the change is seen"
    );
}

#[test]
fn smbd_and_serve_take_turns_on_one_folder() {
    for ignores_posix in [true, false] {
        let ground = ground_or_skip!(ignores_posix);
        let served = Served::serving(support::Place::new(), &ground.behind("data"), &[]);
        let smbd = Client::new(ground.smbd.address(), &ground.place);
        let serve = Client::new(served.address(), &served.place);
        by_turns(
            &ground,
            &smbd,
            &serve,
            (&ground.url("data/tree"), &served.url("tree")),
        );
        fs::remove_dir_all(ground.behind("data/tree")).unwrap();
        by_turns(
            &ground,
            &serve,
            &smbd,
            (&served.url("tree"), &ground.url("data/tree")),
        );
        served.stop();
    }
}

#[test]
fn attributes_of_earlier_releases_are_read_and_not_passed_on() {
    let ground = ground_or_skip!(true);
    let here = ground.place.folder("here");
    fs::create_dir(here.join("tree")).unwrap();
    text(&here.join("tree/text"), "as a copy kept it");
    text(&here.join("tree/plain"), "no descriptor");
    let old = format!("{OWNERS}{OTHER}");
    set_xattr(&here.join("tree/text"), "user.ropeway.sddl", old.as_bytes());
    set_xattr(&here, "user.ropeway.guarded", b"1");
    let served = Served::serving(support::Place::new(), &here, &[]);
    let kept = |url: &str| ground.stat(url)["sddl"].as_str().unwrap().to_owned();
    let wanted = kept(here.join("tree/text").to_str().unwrap());
    assert_eq!(kept(&served.url("tree/text")), wanted);
    let to = |place: &str| ground.place.join(place).to_str().unwrap().to_owned();
    // To a share, to another folder here, and to a share by way of the server.
    ground.copied(
        &["--acls"],
        here.join("tree").to_str().unwrap(),
        &ground.url("data/tree"),
    );
    ground.copied(&[], here.join("tree").to_str().unwrap(), &to("there"));
    ground.copied(&["--acls"], &served.url("tree"), &ground.url("more/tree"));
    for place in [ground.url("data/tree"), ground.url("more/tree"), to("there")] {
        assert_eq!(kept(&format!("{place}/text")), wanted, "{place}");
    }
    for place in ["data/tree/text", "more/tree/text", "there/text"] {
        let at = ground.place.join(place);
        assert!(xattr(&at, "security.NTACL").is_some(), "{place}");
        for old in ["user.ropeway.sddl", "user.ropeway.ntsd", "user.ropeway.guarded"] {
            assert_eq!(xattr(&at, old), None, "{place}");
        }
    }
    // A change through the server replaces the old form.
    let client = Client::new(served.address(), &served.place);
    client.smbcacls("data", "tree/text", &["-S", OPEN]);
    assert_eq!(xattr(&here.join("tree/text"), "user.ropeway.sddl"), None);
    assert!(xattr(&here.join("tree/text"), "security.NTACL").is_some());
    served.stop();
}
