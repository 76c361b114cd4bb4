//! No data is lost, and no access granted, that no client asked for or had a right to.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use ropeway_smb_proto::crypto::SigningAlgorithm;
use ropeway_smb_server::ServerOptions;
use ropeway_smb_wire::create::{AccessMask, CreateOptions, CreateResponse, OplockLevel};
use ropeway_smb_wire::create_context::{
    AppleReplyMap, AppleServerCaps, AppleServerQuery, DurableRequestV2, RequestContext,
};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::copy_chunk::{CopyChunkRequest, ResumeKeyResponse};
use ropeway_smb_wire::header::{Command, HEADER_LEN, HeaderFlags, SIGNATURE_OFFSET};
use ropeway_smb_wire::info::{FileInfoClass, FileLinkInformation, Information};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::query_info::{InfoType, SecurityInformation};
use ropeway_smb_wire::read::READ_RESPONSE_FIXED_LEN;
use ropeway_smb_wire::security::SecurityDescriptor;
use ropeway_smb_wire::set_info::SetInfoRequest;
use ropeway_smb_wire::{FileId, Guid, MessageId, NtStatus, Writer};

use crate::raw::{Create, Raw, Reply, close_body};
use crate::samples;
use crate::serve::Serve;

fn read_only(options: &mut ServerOptions) {
    for share in &mut options.shares {
        share.read_only = true;
    }
}

fn deleted_on_close(name: &str) -> Create<'_> {
    Create {
        options: CreateOptions::DELETE_ON_CLOSE,
        ..Create::of(name)
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

impl Raw {
    pub(crate) fn set_info(&mut self, body: &[u8]) -> NtStatus {
        self.call(Command::SetInfo, |w| w.bytes(body)).status()
    }

    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> NtStatus {
        let body = samples::write(file, offset, data);
        self.call(Command::Write, |w| w.bytes(&body)).status()
    }

    pub(crate) fn link(&mut self, file: FileId, to: &str, replace: bool) -> NtStatus {
        let information = FileLinkInformation {
            replace_if_exists: replace,
            name: to.into(),
        };
        self.set_info(&samples::set_info(
            file,
            FileInfoClass::Link,
            &information.to_bytes(),
        ))
    }

    fn rename(&mut self, file: FileId, to: &str) -> NtStatus {
        self.set_info(&samples::rename(file, to))
    }

    /// Sets the security descriptor of a file or folder.
    pub(crate) fn protect(&mut self, name: &str, list: &str) {
        let file = self.create(&Create::of(name)).unwrap();
        let descriptor = SecurityDescriptor::from_sddl(list).unwrap().to_bytes();
        let request = SetInfoRequest {
            info_type: InfoType::Security,
            info_class: 0,
            additional_information: SecurityInformation::DACL.bits(),
            file_id: file,
            buffer: &descriptor,
        };
        assert_eq!(
            self.set_info(&samples::body(|w| request.encode(w))),
            NtStatus::SUCCESS
        );
        assert_eq!(self.close(file), NtStatus::SUCCESS);
    }

    pub(crate) fn control(&mut self, file: FileId, code: CtlCode, input: &[u8]) -> Reply {
        let body = samples::control(file, code, input);
        self.call(Command::Ioctl, |w| w.bytes(&body))
    }
}

#[test]
fn a_read_only_share_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name);
    fs::write(in_folder("photo"), "photo").unwrap();
    fs::write(in_folder("other"), "other").unwrap();
    let serve = Serve::with(folder.path(), read_only);
    let mut raw = Raw::ready(serve.address);
    let refused = Err(NtStatus::ACCESS_DENIED);
    assert_eq!(raw.create(&deleted_on_close("photo")), refused);
    let other = raw
        .create(&Create {
            access: AccessMask::READ_ATTRIBUTES,
            ..Create::of("other")
        })
        .unwrap();
    assert_eq!(raw.link(other, "photo", true), NtStatus::ACCESS_DENIED);
    assert_eq!(raw.link(other, "new", false), NtStatus::ACCESS_DENIED);
    drop(raw);
    assert_eq!(text(&in_folder("photo")), "photo");
    assert!(!in_folder("new").exists());
}

#[test]
fn an_anonymous_session_cannot_become_a_users() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::with(folder.path(), |options| options.config.anonymous = true);
    let mut raw = Raw::connect(serve.address);
    raw.negotiate();
    assert_eq!(raw.log_in("", ""), NtStatus::SUCCESS);
    assert_eq!(raw.log_in("alice", "secret"), NtStatus::ACCESS_DENIED);
    raw.signer = None;
    assert_ne!(raw.tree("data"), NtStatus::SUCCESS);
}

/// smb2.session.reauth2: open files stay usable after a renewal as anonymous; new access needs
/// another login.
#[test]
fn a_session_may_be_renewed_as_anonymous() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "text").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::connect(serve.address);
    raw.negotiate();
    assert_eq!(raw.log_in("", ""), NtStatus::LOGON_FAILURE, "not a new one");
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("file")).unwrap();
    assert_eq!(raw.log_in("", ""), NtStatus::SUCCESS);
    assert_eq!(raw.write(file, 0, b"more"), NtStatus::SUCCESS);
    assert_eq!(raw.create(&Create::of("file")), Err(NtStatus::ACCESS_DENIED));
    assert_eq!(raw.tree("data"), NtStatus::ACCESS_DENIED);
    assert_eq!(raw.log_in("alice", "secret"), NtStatus::SUCCESS);
    assert_eq!(raw.tree("data"), NtStatus::SUCCESS);
    assert!(raw.create(&Create::of("file")).is_ok());
}

/// An entry for BUILTIN\Users once granted nothing to any user.
#[test]
fn users_are_in_the_group_of_users() {
    for (list, is_in) in [
        ("D:(A;;FA;;;S-1-5-32-545)", true),
        ("D:(A;;FA;;;S-1-5-11)", true),
        ("D:(A;;FA;;;S-1-5-2)", true),
        ("D:(A;;FA;;;S-1-1-0)", true),
        ("D:(A;;FA;;;S-1-5-32-544)", false),
        ("D:(A;;FA;;;S-1-5-32-546)", false),
        ("D:(D;;FW;;;S-1-5-32-545)(A;;FA;;;S-1-1-0)", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "text").unwrap();
        let serve = Serve::start(folder.path());
        let mut raw = Raw::ready(serve.address);
        raw.protect("file", list);
        let wish = Create {
            access: AccessMask::READ_DATA | AccessMask::WRITE_DATA,
            ..Create::of("file")
        };
        assert_eq!(raw.create(&wish).is_ok(), is_in, "{list}");
    }
}

#[test]
fn delete_on_close_spares_another_file_with_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name);
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&deleted_on_close("file")).unwrap();
    fs::write(in_folder("saved"), "saved").unwrap();
    fs::rename(in_folder("saved"), in_folder("file")).unwrap();
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
    assert_eq!(text(&in_folder("file")), "saved");
    let file = raw.create(&deleted_on_close("file")).unwrap();
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
    assert!(!in_folder("file").exists());
}

#[test]
fn a_refused_rename_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join("sub").join(name);
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(in_folder("FOO"), "old").unwrap();
    fs::write(in_folder("new"), "new").unwrap();
    let serve = Serve::start(folder.path());
    let (mut one, mut other) = (Raw::ready(serve.address), Raw::ready(serve.address));
    let held = other
        .create(&Create {
            access: AccessMask::DELETE,
            options: CreateOptions::DIRECTORY_FILE,
            ..Create::of("sub")
        })
        .unwrap();
    let file = one.create(&Create::of("sub\\new")).unwrap();
    assert_eq!(one.rename(file, "sub\\foo"), NtStatus::SHARING_VIOLATION);
    assert_eq!(
        (text(&in_folder("FOO")), text(&in_folder("new"))),
        ("old".into(), "new".into())
    );
    assert_eq!(other.close(held), NtStatus::SUCCESS);
    assert_eq!(one.rename(file, "sub\\foo"), NtStatus::SUCCESS);
    assert_eq!(text(&in_folder("foo")), "new");
    assert!(!in_folder("FOO").exists() && !in_folder("new").exists());
    assert_eq!(one.link(file, "sub\\FOO2", false), NtStatus::SUCCESS);
    assert_eq!(text(&in_folder("FOO2")), "new");
}

/// [MS-FSA] 2.1.5.15.11: moving a node into a folder requires the right to create it there.
#[test]
fn nothing_is_moved_into_a_folder_that_denies_it() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name);
    fs::create_dir(in_folder("in")).unwrap();
    fs::create_dir(in_folder("folder")).unwrap();
    fs::write(in_folder("file"), "file").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("file")).unwrap();
    let inner = raw.create(&Create::of("folder")).unwrap();
    // Denies FILE_ADD_FILE.
    raw.protect("in", "D:(D;;0x2;;;WD)(A;;FA;;;WD)");
    assert_eq!(raw.rename(file, "in\\file"), NtStatus::ACCESS_DENIED);
    assert_eq!(raw.link(file, "in\\file", false), NtStatus::ACCESS_DENIED);
    assert_eq!(raw.rename(file, "other"), NtStatus::SUCCESS);
    assert_eq!(raw.rename(inner, "in\\folder"), NtStatus::SUCCESS);
    assert_eq!(raw.rename(inner, "folder"), NtStatus::SUCCESS);
    // Denies FILE_ADD_SUBDIRECTORY.
    raw.protect("in", "D:(D;;0x4;;;WD)(A;;FA;;;WD)");
    assert_eq!(raw.rename(inner, "in\\folder"), NtStatus::ACCESS_DENIED);
    assert_eq!(raw.rename(file, "in\\file"), NtStatus::SUCCESS);
    assert!(in_folder("folder").exists() && in_folder("in/file").exists());
}

/// Replacing a file requires the right to delete it, from the file or its folder.
#[test]
fn a_file_that_may_not_be_deleted_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name);
    fs::create_dir(in_folder("keeps")).unwrap();
    fs::write(in_folder("keeps/old"), "old").unwrap();
    fs::write(in_folder("new"), "new").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    // Denies DELETE, and FILE_DELETE_CHILD.
    raw.protect("keeps\\old", "D:(D;;SD;;;WD)(A;;FA;;;WD)");
    raw.protect("keeps", "D:(D;;0x40;;;WD)(A;;FA;;;WD)");
    let file = raw.create(&Create::of("new")).unwrap();
    assert_eq!(raw.rename(file, "keeps\\old"), NtStatus::ACCESS_DENIED);
    assert_eq!(raw.link(file, "keeps\\old", true), NtStatus::ACCESS_DENIED);
    assert_eq!(
        (text(&in_folder("keeps/old")), text(&in_folder("new"))),
        ("old".into(), "new".into())
    );
    raw.protect("keeps", "D:(A;;FA;;;WD)");
    assert_eq!(raw.rename(file, "keeps\\old"), NtStatus::SUCCESS);
    assert_eq!(text(&in_folder("keeps/old")), "new");
}

/// [MS-SMB2] 3.3.5.13, where Windows lets an open with append access overwrite. Here that needs a user
/// who may write to the file.
#[test]
fn a_user_who_may_only_append_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, "old").unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let appending = Create {
        access: AccessMask::APPEND_DATA,
        ..Create::of("log")
    };
    let appends = raw.create(&appending).unwrap();
    assert_eq!(raw.write(appends, 0, b"O"), NtStatus::SUCCESS);
    assert_eq!(text(&log), "Old");
    assert_eq!(raw.close(appends), NtStatus::SUCCESS);
    // FILE_APPEND_DATA.
    raw.protect("log", "D:(A;;0x4;;;WD)");
    let appends = raw.create(&appending).unwrap();
    for offset in [0, 2] {
        assert_eq!(raw.write(appends, offset, b"new"), NtStatus::ACCESS_DENIED);
    }
    assert_eq!(text(&log), "Old");
    assert_eq!(raw.write(appends, 3, b" new"), NtStatus::SUCCESS);
    assert_eq!(text(&log), "Old new");
    // Long enough for a worker.
    raw.charge = 4;
    assert_eq!(raw.write(appends, 6, &[b'x'; 200_000]), NtStatus::ACCESS_DENIED);
    assert_eq!(text(&log), "Old new");
    assert_eq!(raw.write(appends, 7, &[b'x'; 200_000]), NtStatus::SUCCESS);
    assert_eq!(fs::metadata(&log).unwrap().len(), 200_007);
    let end = samples::set_info(appends, FileInfoClass::EndOfFile, &[0; 8]);
    assert_eq!(raw.set_info(&end), NtStatus::ACCESS_DENIED);
}

#[test]
fn files_of_a_removed_share_can_only_be_closed() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("file")).unwrap();
    assert_eq!(raw.write(file, 0, b"content"), NtStatus::SUCCESS);
    serve.handle.set_shares(Vec::new());
    assert_eq!(raw.write(file, 0, b"content"), NtStatus::NETWORK_NAME_DELETED);
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
}

/// [MS-SMB2] 3.3.5.9.10: the response to a create is lost with its connection, and the create is
/// repeated on another one.
#[test]
fn a_repeated_create_returns_a_usable_file() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    let how = Create {
        oplock: OplockLevel::Batch,
        contexts: vec![RequestContext::DurableRequestV2(DurableRequestV2 {
            timeout_ms: 0,
            flags: Default::default(),
            create_guid: Guid([3; 16]),
        })],
        ..Create::of("file")
    };
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&how).unwrap();
    drop(raw);
    serve.settles_at((0, 1));
    let mut raw = Raw::ready(serve.address);
    let mut message = vec![0; HEADER_LEN];
    how.request().encode(&mut Writer::within(&mut message, 0));
    let mut header = raw.header(Command::Create);
    header.flags |= HeaderFlags::REPLAY_OPERATION;
    raw.seal_header(&header, &mut message);
    raw.send(&message);
    let reply = raw.reply().unwrap();
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    let again = CreateResponse::decode(&mut reply.body()).unwrap().file_id;
    assert_eq!(again, file);
    assert_eq!(raw.write(file, 0, b"content"), NtStatus::SUCCESS);
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
}

/// Apple's copyfile: COPYCHUNK without chunks, from a client that was offered copies of whole
/// files.
#[test]
fn whole_files_are_copied_for_a_mac() {
    for is_mac in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("from"), "content").unwrap();
        let serve = Serve::start(folder.path());
        let mut raw = Raw::ready(serve.address);
        let query = RequestContext::Apple(AppleServerQuery {
            request_map: AppleReplyMap::SERVER_CAPS,
            client_caps: AppleServerCaps::SUPPORTS_OSX_COPYFILE,
        });
        let from = raw
            .create(&Create {
                contexts: if is_mac { vec![query] } else { Vec::new() },
                ..Create::of("from")
            })
            .unwrap();
        let to = raw.create(&Create::of("to")).unwrap();
        let reply = raw.control(from, CtlCode::SRV_REQUEST_RESUME_KEY, &[]);
        let output = IoctlResponse::decode(&mut reply.body()).unwrap().output.to_vec();
        let request = CopyChunkRequest {
            source_key: ResumeKeyResponse::decode(&output).unwrap().resume_key,
            chunks: Vec::new(),
        };
        let mut input = Vec::new();
        request.encode(&mut Writer::new(&mut input));
        let copied = raw.control(to, CtlCode::SRV_COPYCHUNK, &input);
        assert_eq!(copied.status(), NtStatus::SUCCESS);
        assert_eq!(
            text(&folder.path().join("to")),
            if is_mac { "content" } else { "" }
        );
    }
}

/// [MS-SMB2] 3.3.5.2.4: the signature of a large WRITE is moved out of the message before it is
/// verified. One that does not match is refused, nothing is written, and the reply carries it back.
#[test]
fn a_large_write_with_a_wrong_signature_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    for signing in [SigningAlgorithm::AesGmac, SigningAlgorithm::AesCmac] {
        let mut raw = Raw::connect(serve.address);
        raw.signing = signing;
        raw.enter();
        let name = format!("{signing:?}");
        let file = raw.create(&Create::of(name.as_str())).unwrap();
        let data = vec![7; 60_000];
        let body = samples::write(file, 0, &data);
        for at in [SIGNATURE_OFFSET, SIGNATURE_OFFSET + 15, HEADER_LEN + 60, 60_000] {
            let mut message = raw.message(Command::Write, |w| w.bytes(&body));
            message[at] ^= 1;
            raw.send(&message);
            let reply = raw.reply().unwrap();
            assert_eq!(reply.status(), NtStatus::ACCESS_DENIED, "{name}, byte {at}");
            let field = SIGNATURE_OFFSET..HEADER_LEN;
            assert_eq!(
                reply.message[field.clone()],
                message[field],
                "{name}: its own signature comes back"
            );
        }
        assert_eq!(folder.path().join(&name).metadata().unwrap().len(), 0);
        assert_eq!(raw.write(file, 0, &data), NtStatus::SUCCESS);
        assert_eq!(fs::read(folder.path().join(&name)).unwrap(), data);
    }
}

/// A reply is read into the buffer of an earlier one: nothing of that may show.
#[test]
fn a_short_read_shows_nothing_of_an_earlier_reply() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::start(folder.path());
    fs::write(folder.path().join("secret"), vec![b's'; 65_536]).unwrap();
    fs::write(folder.path().join("short"), vec![b'n'; 100]).unwrap();
    let mut raw = Raw::ready(serve.address);
    for _ in 0..3 {
        let file = raw.create(&Create::of("secret")).unwrap();
        let reply = raw.call(Command::Read, |w| w.bytes(&samples::read(file, 65_536)));
        assert_eq!(reply.message[80..], [b's'; 65_536]);
        let file = raw.create(&Create::of("short")).unwrap();
        let reply = raw.call(Command::Read, |w| w.bytes(&samples::read(file, 65_536)));
        assert_eq!(reply.status(), NtStatus::SUCCESS);
        assert_eq!(reply.message[80..], [b'n'; 100]);
    }
}

/// Large READs of a client that sends several at once are read by other threads, while their replies are
/// sent; the CLOSE behind them does not take the file from them.
#[test]
fn reads_that_are_sent_together() {
    const LENGTH: usize = 4 << 20;
    const COUNT: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut content: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(COUNT * LENGTH)
        .collect();
    content.truncate(COUNT * LENGTH - 1000);
    fs::write(folder.path().join("file"), &content).unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    // Pays for all of them.
    raw.asks = 500;
    for _ in 0..2 {
        assert_eq!(raw.echo(), NtStatus::SUCCESS);
    }
    for round in 0..10 {
        let file = raw.create(&Create::of("file")).unwrap();
        raw.charge = (LENGTH >> 16) as u16;
        let mut bytes = Vec::new();
        let mut parts = HashMap::new();
        let mut add = |message: Vec<u8>| {
            bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&message);
        };
        for part in 0..=COUNT {
            let header = raw.next_id;
            let read = samples::read_at(file, (part * LENGTH) as u64, LENGTH as u32);
            add(raw.message(Command::Read, |w| w.bytes(&read)));
            parts.insert(MessageId(header), part);
        }
        raw.charge = 1;
        add(raw.message(Command::Close, |w| close_body(w, file)));
        raw.socket.write_all(&bytes).unwrap();
        for _ in 0..COUNT + 2 {
            let reply = raw.reply().unwrap();
            let Some(part) = parts.remove(&reply.header.message_id) else {
                assert_eq!(reply.status(), NtStatus::SUCCESS, "round {round}");
                continue;
            };
            let expected = content.get(part * LENGTH..).unwrap_or_default();
            if expected.is_empty() {
                assert_eq!(reply.status(), NtStatus::END_OF_FILE, "round {round}");
            } else {
                let expected = &expected[..expected.len().min(LENGTH)];
                let data = &reply.message[HEADER_LEN + READ_RESPONSE_FIXED_LEN..];
                assert!(data == expected, "round {round}, part {part}");
            }
        }
        assert!(parts.is_empty());
    }
}
