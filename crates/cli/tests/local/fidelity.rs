//! What a share keeps in addition to contents: access lists, extended attributes, streams, times
//! and attributes; and contents that a server shares or copies itself. With the real binary against
//! a private smbd. Losses are reported.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::support::{
    self, Ground, Volume, has_xattrs, is_root, lost, patterned, set_xattr, skip, text, tool, xattr,
};
use ropeway_peers::or_skip;
use ropeway_smb_wire::security::SecurityDescriptor;
use serde_json::Value;

/// Owners that no test user has, and a DACL without inheritance and with a denial. The entries are
/// in smbcacls' order, as smbcacls and as this program spell them.
const OWN: [&str; 2] = [
    "O:S-1-22-1-1G:S-1-22-2-2D:P(D;;0x2;;;S-1-22-2-7)(A;;0x1200a9;;;WD)(A;;0x1f01ff;;;S-1-22-1-1)(A;;0x1f01ff;;;BA)",
    "O:S-1-22-1-1G:S-1-22-2-2D:P(D;;DC;;;S-1-22-2-7)(A;;0x1200a9;;;WD)(A;;FA;;;S-1-22-1-1)(A;;FA;;;BA)",
];
/// A descriptor that is inherited.
const FOLDERS: &str =
    "O:BAG:S-1-22-2-1D:PAI(A;CI;0x1200a9;;;WD)(A;OICI;0x1f01ff;;;BA)(A;OICIIO;0x1301bf;;;CO)";

/// Makes a tree on the share `data` with its own access lists on three nodes.
fn tree_with_lists(ground: &Ground) {
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
}

#[test]
fn access_lists_go_from_share_to_share_and_through_this_machine() {
    if !is_root() || support::program("smbcacls").is_none() {
        skip!("needs root and smbcacls");
    }
    let ground = or_skip!(Ground::with_shares(
        &["data", "more", "plain"],
        |name, share| match name {
            "plain" => share,
            _ => share.acls(),
        }
    ));
    if !has_xattrs(&ground.place) {
        skip!("no extended attributes below the folder for temporary files");
    }
    tree_with_lists(&ground);
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
    // Samba's tool and this program agree; Samba's writes rights as numbers.
    let meaning = |sddl: &String| SecurityDescriptor::from_sddl(sddl).unwrap();
    let both = before.iter().map(meaning).zip(before_told.iter().map(meaning));
    both.for_each(|(one, other)| assert_eq!(one, other));
    assert_eq!(before_told[1], OWN[1]);
    let copied = ground.copied(&["--acls"], &ground.url("data/tree"), &ground.url("more/tree"));
    assert_eq!(of("more", "tree"), before);
    assert_eq!(told(&ground.url("more/tree")), before_told);
    assert_eq!((lost(&copied, "acl"), lost(&copied, "owner")), (0, 0), "{copied}");
    // Through this machine.
    let here = ground.place.join("here");
    let here_text = here.to_str().unwrap();
    let down = ground.copied(&["--acls"], &ground.url("more/tree"), here_text);
    assert_eq!(lost(&down, "acl"), 0, "{down}");
    for (node, said) in nodes.iter().zip(&before_told) {
        let at = here.join(node.trim_start_matches('/'));
        assert!(xattr(&at, "security.NTACL").is_some(), "{node}");
        assert_eq!(xattr(&at, "user.ropeway.sddl"), None, "{node}");
        assert_eq!(
            ground.stat(at.to_str().unwrap())["sddl"].as_str(),
            Some(said.as_str())
        );
    }
    let up = ground.copied(&["--acls"], here_text, &ground.url("data/again"));
    assert_eq!(of("data", "again"), before);
    assert_eq!(lost(&up, "acl"), 0, "{up}");
    // A second run has nothing to do.
    let again = ground.copied(&["--acls"], here_text, &ground.url("data/again"));
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
}

#[test]
fn access_lists_that_are_not_kept_are_reported() {
    if !is_root() || support::program("smbcacls").is_none() {
        skip!("needs root and smbcacls");
    }
    let ground = or_skip!(Ground::with_shares(
        &["data", "more", "plain"],
        |name, share| match name {
            "plain" => share,
            _ => share.acls(),
        }
    ));
    if !has_xattrs(&ground.place) {
        skip!("no extended attributes below the folder for temporary files");
    }
    tree_with_lists(&ground);
    let here = ground.place.join("here");
    let here_text = here.to_str().unwrap();
    ground.copied(&["--acls"], &ground.url("data/tree"), here_text);
    // Without the flag the list is not kept, and is not stored as another kind of attribute.
    let without = ground.copied(&[], here_text, &ground.url("data/without"));
    assert_eq!(lost(&without, "acl"), 5, "{without}");
    let small = ground.stat(&ground.url("data/without/small"));
    assert_ne!(small["sddl"], OWN[1]);
    assert_eq!(small["xattrs"], Value::Null);
    // A share that stores only part of a list does not say so; the loss is reported anyway.
    let poor = ground.copied(&["--acls"], &ground.url("data/tree"), &ground.url("plain/tree"));
    assert!(lost(&poor, "acl") >= 3, "{poor}");
    assert_eq!(poor.number("files"), 3);
}

#[test]
fn owners_that_cannot_be_set_are_reported() {
    if !is_root() || support::program("smbcacls").is_none() {
        skip!("needs root and smbcacls");
    }
    let ground = or_skip!(Ground::with_shares(&["data", "own"], |name, share| match name {
        "own" => share.acls().as_themselves(),
        _ => share.acls(),
    }));
    if !has_xattrs(&ground.place) {
        skip!("no extended attributes below the folder for temporary files");
    }
    for path in [ground.place.path(), &ground.behind("own")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    fs::create_dir(ground.behind("data/tree")).unwrap();
    patterned(&ground.behind("data/tree/small"), 3000);
    patterned(&ground.behind("data/tree/large"), 6 << 20);
    let dacl = "D:P(A;;0x1200a9;;;WD)(A;;0x1f01ff;;;BA)";
    for path in ["tree/small", "tree/large"] {
        let sddl = format!("O:S-1-22-1-77G:S-1-22-2-77{dacl}");
        ground.smbcacls("data", path, &["-S", &sddl]);
    }
    let bobs = |path| ground.smbd.url_as(Some("bob"), path);
    let copied = ground.copied(&["--acls"], &bobs("data/tree"), &bobs("own/tree"));
    assert!(lost(&copied, "owner") >= 2, "{copied}");
    for path in ["own/tree/small", "own/tree/large"] {
        let stat = ground.stat(&bobs(path));
        let sddl = stat["sddl"].as_str().unwrap();
        assert!(sddl.ends_with("D:P(A;;0x1200a9;;;WD)(A;;FA;;;BA)"), "{sddl}");
        assert!(!sddl.contains("S-1-22-1-77"), "{sddl}");
    }
}

#[test]
fn extended_attributes_go_both_ways() {
    let ground = or_skip!(Ground::with_shares(
        &["data", "more", "without"],
        |name, share| { share.ea_support(name != "without") }
    ));
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
    let up = ground.copied(&[], from, &ground.url("data/tree"));
    same(&ground.behind("data/tree"));
    assert_eq!(lost(&up, "xattr"), 0, "{up}");
    let stat = ground.stat(&ground.url("data/tree/small"));
    assert_eq!(stat["xattrs"].as_array().unwrap().len(), 3, "{stat}");
    ground.copied(&[], &ground.url("data/tree"), &ground.url("more/tree"));
    same(&ground.behind("more/tree"));
    let back = ground.place.join("back");
    ground.copied(&[], &ground.url("more/tree"), back.to_str().unwrap());
    same(&back);

    // A share without extended attributes: nothing fails, and all losses are reported.
    let finished = ground.copied(&[], from, &ground.url("without/tree"));
    assert!(lost(&finished, "xattr") >= 3, "{finished}");
    assert_eq!(finished.number("files"), 3, "{finished}");
    assert_eq!(xattr(&ground.behind("without/tree/small"), "user.comment"), None);
    let finished = ground.copied(&["--no-xattrs"], from, &ground.url("data/bare"));
    assert_eq!(
        (
            lost(&finished, "xattr"),
            xattr(&ground.behind("data/bare/small"), "user.comment")
        ),
        (0, None)
    );
}

#[test]
fn extended_attributes_that_do_not_fit_are_reported() {
    let ground = or_skip!(Ground::with_shares(&["data"], |_, share| share));
    if !has_xattrs(&ground.place) {
        skip!("no extended attributes below the folder for temporary files");
    }
    // Attributes that do not fit are reported; the others are kept.
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
    let finished = ground.copied(&[], odd.to_str().unwrap(), &ground.url("data/odd"));
    assert_eq!(lost(&finished, "xattr"), 3, "{finished}");
    assert_eq!(
        xattr(&ground.behind("data/odd/file"), "user.fits").as_deref(),
        Some(&b"x"[..])
    );
    // Attributes that the source no longer has are removed.
    rustix::fs::removexattr(odd.join("file"), "user.fits").unwrap();
    set_xattr(&odd.join("file"), "user.newer", b"y");
    text(&odd.join("file"), "changed");
    ground.copied(&[], odd.to_str().unwrap(), &ground.url("data/odd"));
    assert_eq!(xattr(&ground.behind("data/odd/file"), "user.fits"), None);
    assert_eq!(
        xattr(&ground.behind("data/odd/file"), "user.newer").as_deref(),
        Some(&b"y"[..])
    );
}

/// Returns the bytes of a file that share their place with another file's (fiemap's flag `shared`).
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
    let ground = or_skip!(Ground::with_shares_at(
        &["data", "more"],
        &volume.root(),
        |_, share| { share.module("btrfs") }
    ));
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
    // Extents are visible once they are on the disk.
    tool("sync", &["-f".as_ref(), volume.root().as_os_str()]).unwrap();
    for (from, to) in [("data/tree", "data/copy"), ("data/tree", "more/copy")] {
        let copied = ground.copied(&[], &ground.url(from), &ground.url(to));
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
    // If contents cannot be shared, the server copies. With --verify the data must come here.
    let verified = ground.copied(
        &["--verify"],
        &ground.url("data/tree"),
        &ground.url("data/verified"),
    );
    assert!(verified.number("bytes_sent") > 13 << 20, "{verified}");
    support::content_same(&behind("data/tree"), &behind("data/verified"));
}

#[test]
fn a_server_that_cannot_share_contents_copies_them_itself() {
    let ground = or_skip!(Ground::with_shares(&["data", "more"], |_, share| share));
    fs::create_dir(ground.behind("data/tree")).unwrap();
    patterned(&ground.behind("data/tree/large"), (20 << 20) + 77);
    patterned(&ground.behind("data/tree/middling"), 300_001);
    let copied = ground.copied(&[], &ground.url("data/tree"), &ground.url("more/copy"));
    assert_eq!(copied.number("bytes_sent"), 0, "{copied}");
    support::content_same(&ground.behind("data/tree"), &ground.behind("more/copy"));
}

#[test]
fn streams_go_both_ways() {
    let ground = or_skip!(Ground::with_shares(
        &["data", "more", "without"],
        |name, share| match name {
            "without" => share.ea_support(false),
            _ => share.streams(),
        }
    ));
    if !has_xattrs(&ground.place) {
        skip!("no extended attributes below the folder for temporary files");
    }
    let source = ground.place.folder("source");
    fs::create_dir(source.join("sub")).unwrap();
    text(&source.join("small"), "content");
    patterned(&source.join("sub/large"), 5 << 20);
    let stream = "user.DosStream.Zone.Identifier:$DATA";
    let nodes = ["small", "sub", "sub/large"];
    for node in nodes {
        // As Samba stores it: with a 0 at the end.
        set_xattr(&source.join(node), stream, b"[ZoneTransfer]\0");
        set_xattr(&source.join(node), "user.comment", b"beside it");
    }
    let from = source.to_str().unwrap();
    let up = ground.copied(&[], from, &ground.url("data/tree"));
    assert_eq!(up.summary()["losses"]["stream"], Value::Null, "{up}");
    ground.copied(&[], &ground.url("data/tree"), &ground.url("more/tree"));
    let back = ground.place.join("back");
    let down = ground.copied(&[], &ground.url("more/tree"), back.to_str().unwrap());
    assert_eq!(down.summary()["losses"]["stream"], Value::Null, "{down}");
    for node in nodes {
        let stat = ground.stat(&ground.url(&format!("more/tree/{node}")));
        assert_eq!(stat["streams"][0]["name"], "Zone.Identifier", "{stat}");
        assert_eq!(stat["streams"][0]["size"], 14, "{stat}");
        for name in [stream, "user.comment"] {
            assert_eq!(
                xattr(&back.join(node), name),
                xattr(&source.join(node), name),
                "{node} {name}"
            );
        }
    }
    let poor = ground.copied(&[], from, &ground.url("without/tree"));
    assert_eq!((lost(&poor, "stream"), lost(&poor, "xattr")), (3, 3), "{poor}");
    // The share's streams are reported too if this machine's target cannot hold them.
    let volume = support::or_skip!(Volume::fat(64));
    let target = volume.join("tree");
    let poor = ground.copied(&[], &ground.url("data/tree"), target.to_str().unwrap());
    assert_eq!((lost(&poor, "stream"), lost(&poor, "xattr")), (3, 3), "{poor}");
}

#[test]
fn times_and_dos_attributes_go_from_share_to_share() {
    let ground = or_skip!(Ground::with_shares(&["data", "more"], |_, share| share));
    fs::create_dir_all(ground.behind("data/tree/sub")).unwrap();
    text(&ground.behind("data/tree/small"), "content");
    patterned(&ground.behind("data/tree/sub/large"), 5 << 20);
    let commands = [
        // Creation, access, write and change.
        "utimes tree\\small 2001:02:03-04:05:06 -1 2011:02:03-04:05:06 -1",
        "utimes tree\\sub\\large 2002:02:03-04:05:06 -1 2012:02:03-04:05:06 -1",
        "utimes tree\\sub 2003:02:03-04:05:06 -1 2013:02:03-04:05:06 -1",
        "setmode tree\\small +hs",
        "setmode tree\\sub\\large +r",
        "setmode tree\\sub +h",
    ];
    let done = or_skip!(ground.smbd.smbclient("data"))
        .args(["--command", &commands.join(";")])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let of = |share: &str, node: &str| {
        let stat = ground.stat(&ground.url(&format!("{share}/tree/{node}")));
        ["created", "modified", "dos_attributes"].map(|name| stat[name].clone())
    };
    let copied = ground.copied(&[], &ground.url("data/tree"), &ground.url("more/tree"));
    for node in ["small", "sub", "sub/large"] {
        assert_eq!(of("more", node), of("data", node), "{node}");
        let year = of("data", node)[0].as_str().unwrap()[..4].parse::<u32>().unwrap();
        assert!((2001..2004).contains(&year), "{node}");
    }
    for name in ["created_time", "dos_attributes", "times"] {
        assert_eq!(lost(&copied, name), 0, "{copied}");
    }
    // A second run has nothing to do; it replaces hidden or read-only nodes if they changed.
    let again = ground.copied(&[], &ground.url("data/tree"), &ground.url("more/tree"));
    assert_eq!(again.number("bytes_sent"), 0, "{again}");
    text(&ground.behind("data/tree/small"), "changed content");
    patterned(&ground.behind("data/tree/sub/large"), (5 << 20) + 1);
    ground.copied(&[], &ground.url("data/tree"), &ground.url("more/tree"));
    support::content_same(&ground.behind("data/tree"), &ground.behind("more/tree"));
    // By way of this machine, which keeps them as Samba does.
    let here = ground.place.join("here");
    let here = here.to_str().unwrap();
    let down = ground.copied(&[], &ground.url("data/tree"), here);
    ground.copied(&[], here, &ground.url("more/again"));
    for node in ["small", "sub", "sub/large"] {
        let stat = ground.stat(&format!("{here}/{node}"));
        let kept = ["created", "modified", "dos_attributes"].map(|name| stat[name].clone());
        assert_eq!(kept, of("data", node), "{node}");
        assert_eq!(stat["xattrs"], Value::Null, "bookkeeping is not shown");
        let again = ground.stat(&ground.url(&format!("more/again/{node}")));
        let again = ["created", "modified", "dos_attributes"].map(|name| again[name].clone());
        assert_eq!(again, kept, "{node}");
    }
    for name in ["created_time", "dos_attributes", "times"] {
        assert_eq!(lost(&down, name), 0, "{down}");
    }
}
