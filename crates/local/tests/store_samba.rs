//! The store and Samba keep Windows metadata in the same formats: each reads what the other wrote.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_peers::{Share, Smbd, or_skip, program};
use ropeway_vfs::store::{Access, NewNode, NodeChange, NodeOpen, Opened, Store, StreamOpen};
use ropeway_vfs::{Name, RelPath, Timestamp};

fn smbclient(smbd: &Smbd, commands: &str) -> String {
    let mut command = smbd.smbclient("data").unwrap();
    let output = command
        .args(["-c", commands])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{commands}: {said}\n{}", smbd.log());
    said
}

fn open(store: &LocalStore, at: &str, create: Option<NewNode>) -> Opened {
    let how = NodeOpen {
        access: Access::Write,
        create,
        ..NodeOpen::default()
    };
    store.open(&RelPath::parse(at.as_bytes()).unwrap(), &how).unwrap()
}

#[test]
fn samba_reads_what_the_store_keeps_and_the_other_way_round() {
    let folder = tempfile::tempdir().unwrap();
    let share = Share::new("data", folder.path()).dos_attributes(true).streams();
    let smbd = or_skip!(Smbd::builder().user("alice", "secret").share(share).start());
    if program("smbclient").is_none() {
        println!("skipped: smbclient is not installed (apt-get install smbclient)");
        return;
    }
    let store = LocalStore::open(folder.path(), &StoreOptions::default()).unwrap();
    ours(&store, &smbd, folder.path());
    theirs(&store, &smbd, folder.path());
}

fn ours(store: &LocalStore, smbd: &Smbd, folder: &Path) {
    // Hidden, system and archive, then also a creation time.
    let new = NewNode {
        directory: false,
        dos_attributes: Some(0x26),
    };
    let node = open(store, "ours", Some(new)).node;
    let said = smbclient(smbd, "allinfo ours");
    assert!(said.contains("(26)"), "{said}");
    let change = NodeChange {
        created: Some(Timestamp::from_unix(1_000_000_000, 0)),
        ..NodeChange::default()
    };
    node.change(&change).unwrap();
    let create = StreamOpen {
        create: true,
        exclusive: true,
    };
    let stream = node.open_stream(&Name::new(b"note").unwrap(), &create).unwrap().0;
    stream.write_at(b"a stream of ours", 0).unwrap();
    let said = smbclient(smbd, "allinfo ours");
    assert!(said.contains("(26)") && said.contains("2001"), "{said}");
    assert!(said.contains("[:note:$DATA], 16 bytes"), "{said}");
    let got = folder.join("got");
    smbclient(smbd, &format!("get ours:note {}", got.display()));
    assert_eq!(fs::read(&got).unwrap(), b"a stream of ours");
    // Of a folder.
    let new = NewNode {
        directory: true,
        dos_attributes: Some(0x2),
    };
    open(store, "folder", Some(new));
    let said = smbclient(smbd, "allinfo folder");
    assert!(said.contains("(12)"), "{said}");
}

fn theirs(store: &LocalStore, smbd: &Smbd, folder: &Path) {
    let source = folder.join("source");
    fs::write(&source, "a stream of theirs").unwrap();
    let put = source.display();
    smbclient(
        smbd,
        &format!("put {put} theirs; put {put} theirs:remark; setmode theirs +rh; mkdir d; setmode d +h"),
    );
    let opened = open(store, "theirs", None);
    assert_eq!(opened.stat.dos_attributes, Some(0x23), "{:?}", opened.stat);
    assert!(opened.stat.created.to_unix().0 > 1_500_000_000);
    let streams = opened.node.streams().unwrap();
    assert_eq!(streams.len(), 1);
    assert_eq!(
        (streams[0].name.as_bytes(), streams[0].size),
        (&b"remark"[..], 18)
    );
    let name = Name::new(b"REMARK").unwrap();
    let stream = opened.node.open_stream(&name, &StreamOpen::default()).unwrap().0;
    let mut buffer = [0; 64];
    let count = stream.read_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer[..count], b"a stream of theirs");
    assert_eq!(open(store, "d", None).stat.dos_attributes, Some(0x2));
    // Samba sees the changes of the store.
    let change = NodeChange {
        dos_attributes: Some(0x20),
        ..NodeChange::default()
    };
    opened.node.change(&change).unwrap();
    assert_eq!(opened.node.stat().unwrap().created, opened.stat.created);
    let said = smbclient(smbd, "allinfo theirs");
    assert!(said.contains("(20)"), "{said}");
}
