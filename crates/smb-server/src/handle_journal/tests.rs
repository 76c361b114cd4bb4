//! Tests of the journal and of its records.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use proptest::prelude::*;
use ropeway_smb_proto::server::hub::{
    AppInstance, FileKey, KeptBreak, KeptCaching, KeptDeletion, KeptLock, PersistentOpen,
};
use ropeway_smb_wire::create::{AccessMask, CreateAction, CreateOptions, ShareAccess};
use ropeway_smb_wire::create_context::{AppInstanceVersion, LeaseState};
use ropeway_smb_wire::{Guid, LeaseKey, Text};

use super::*;

const BOOT: [u8; 16] = [1; 16];

fn sample(id: u64) -> Record {
    Record {
        boot: BOOT,
        share: "data".into(),
        birth: Some(Timestamp::from_unix(1_700_000_000, 5)),
        options: CreateOptions::NON_DIRECTORY_FILE,
        action: CreateAction::CREATED,
        may_overwrite: true,
        open: PersistentOpen {
            id: OpenId::new(id),
            create_guid: Guid([2; 16]),
            client: Guid([3; 16]),
            user: Arc::from("ann"),
            share_id: 0,
            file: FileKey {
                share_volume: 4,
                index: 5,
                stream: None,
            },
            path: "folder\\file".into(),
            directory: false,
            access: AccessMask::FILE_ALL,
            share_access: ShareAccess::READ,
            delete_on_close: false,
            timeout_ms: 1000,
            app_instance: None,
            parent_lease: None,
            channel_sequence: 7,
            replayable: true,
            caching: KeptCaching::Oplock(LeaseState::READ_CACHING),
            breaking: None,
            locks: vec![KeptLock {
                offset: 1,
                length: 2,
                exclusive: true,
            }],
            lock_sequences: None,
            deletion: None,
        },
    }
}

prop_compose! {
    fn caching()(is_lease: bool, state: u32, key: [u8; 16], epoch: Option<u16>) -> KeptCaching {
        let state = LeaseState::from_bits_retain(state);
        match is_lease {
            false => KeptCaching::Oplock(state),
            true => KeptCaching::Lease { key: LeaseKey(key), state, epoch },
        }
    }
}

fn text() -> impl Strategy<Value = Text> {
    prop::collection::vec(any::<u16>(), 0..40).prop_map(Text::from_units)
}

prop_compose! {
    fn names()(
        share in ".{0,20}", user in ".{0,20}", path in text(), stream in prop::option::of(text()),
        deletion in prop::option::of((".{0,20}", any::<Option<[u8; 16]>>())),
    ) -> (String, Arc<str>, Text, Option<Text>, Option<KeptDeletion>) {
        let deletion = deletion.map(|(user, key)| KeptDeletion {
            user: Arc::from(user),
            parent_lease: key.map(LeaseKey),
        });
        (share, Arc::from(user), path, stream, deletion)
    }
}

prop_compose! {
    fn record()(
        (share, user, path, stream, deletion) in names(),
        numbers: ([u8; 16], u64, [u8; 16], [u8; 16], u64, u64),
        words: (u32, u32, u32, u32, u32, u16),
        bits: [bool; 4],
        birth: Option<i64>,
        keys: (Option<([u8; 16], Option<(u64, u64)>)>, Option<[u8; 16]>),
        (caching, breaking) in (caching(), any::<Option<(u32, u32)>>()),
        sequences in prop::option::of(prop::collection::vec(any::<u8>(), 64)),
        locks in prop::collection::vec(any::<(u64, u64, bool)>(), 0..30),
    ) -> Record {
        Record {
            boot: numbers.0,
            share,
            birth: birth.map(|birth| Timestamp(birth.into())),
            options: CreateOptions::from_bits_retain(words.2),
            action: CreateAction(words.3),
            may_overwrite: bits[0],
            open: PersistentOpen {
                id: OpenId::new(numbers.1),
                create_guid: Guid(numbers.2),
                client: Guid(numbers.3),
                user,
                share_id: 0,
                file: FileKey { share_volume: numbers.4, index: numbers.5, stream },
                path,
                directory: bits[1],
                access: AccessMask::from_bits_retain(words.0),
                share_access: ShareAccess::from_bits_retain(words.1),
                delete_on_close: bits[2],
                timeout_ms: words.4,
                app_instance: keys.0.map(|(id, version)| AppInstance {
                    id: Guid(id),
                    version: version.map(|(high, low)| AppInstanceVersion { high, low }),
                }),
                parent_lease: keys.1.map(LeaseKey),
                channel_sequence: words.5,
                replayable: bits[3],
                caching,
                breaking: breaking.map(|(requested, required)| KeptBreak {
                    requested: LeaseState::from_bits_retain(requested),
                    required: LeaseState::from_bits_retain(required),
                }),
                locks: locks.into_iter().map(|(offset, length, exclusive)| KeptLock { offset, length, exclusive }).collect(),
                lock_sequences: sequences.map(|all| Box::new(std::array::from_fn(|at| all[at]))),
                deletion,
            },
        }
    }
}

proptest! {
    #[test]
    fn records_round_trip(record in record()) {
        prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
    }

    /// With a valid checksum, too: see `fuzz_record`.
    #[test]
    fn no_bytes_make_the_decoder_panic(record in record(), changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6), cut: usize) {
        let mut body = record.encode().split_off(18);
        for (at, byte) in changes {
            let at = at % body.len();
            body[at] = byte;
        }
        body.truncate(body.len() - cut % 8);
        let mut bytes = b"RopewayH\x01\x00".to_vec();
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        bytes.extend_from_slice(&body);
        if let Ok(record) = Record::decode(&bytes) {
            prop_assert_eq!(Record::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_damaged_record_is_none(record in record(), at: usize, bit in 0..8) {
        let mut bytes = record.encode();
        let at = at % bytes.len();
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Record::decode(&bytes).is_err());
        prop_assert!(Record::decode(&bytes[..at]).is_err());
    }
}

#[test]
fn the_format_stays() {
    // Made by version 1. Records of a running server must be readable after an upgrade.
    let hash = crc32fast::hash(&sample(0xA1).encode());
    assert_eq!((sample(0xA1).encode().len(), hash), (198, 0xB500_44F6));
}

fn journal(folder: &Path) -> HandleJournal {
    HandleJournal::open_in_boot(folder, BOOT).unwrap()
}

fn numbers(journal: &HandleJournal) -> Vec<u64> {
    let records = journal.load().unwrap();
    let mut numbers: Vec<_> = records.iter().map(|record| record.open.id.get()).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn records_are_replaced_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("deep/journal");
    let first = journal(&folder);
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    for id in [3, 1, 2] {
        first.put(&sample(id)).unwrap();
    }
    let mut changed = sample(1);
    changed.open.locks.clear();
    first.put(&changed).unwrap();
    first.remove(OpenId::new(2)).unwrap();
    first.remove(OpenId::new(2)).unwrap();
    drop(first);
    let again = journal(&folder);
    assert_eq!(again.load().unwrap(), [changed, sample(3)]);
    let mode = fs::metadata(folder.join("0000000000000001.handle"))
        .unwrap()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn two_servers_do_not_share_a_journal() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let first = journal(&folder);
    let second = HandleJournal::open_in_boot(&folder, BOOT);
    assert!(matches!(second, Err(HandleJournalError::InUse)));
    drop(first);
    journal(&folder);
}

#[test]
fn others_have_no_access() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o750)).unwrap();
    let open = || HandleJournal::open_in_boot(place.path(), BOOT);
    assert!(matches!(open(), Err(HandleJournalError::Exposed)));
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o700)).unwrap();
    open().unwrap();
    let link = place.path().join("link");
    std::os::unix::fs::symlink(place.path(), &link).unwrap();
    let linked = HandleJournal::open_in_boot(&link, BOOT);
    assert!(matches!(linked, Err(HandleJournalError::Exposed)));
}

#[test]
fn a_broken_record_drops_itself_only() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let first = journal(&folder);
    for id in 1..=8 {
        first.put(&sample(id)).unwrap();
    }
    let path = |id: u64| folder.join(name_of(OpenId::new(id), RECORD));
    let bytes = fs::read(path(1)).unwrap();
    fs::write(path(1), &bytes[..40]).unwrap();
    fs::write(path(2), b"").unwrap();
    fs::write(path(3), &bytes).unwrap();
    let mut newer = fs::read(path(4)).unwrap();
    newer[8] = 2;
    fs::write(path(4), newer).unwrap();
    fs::remove_file(path(5)).unwrap();
    std::os::unix::fs::symlink(path(6), path(5)).unwrap();
    fs::remove_file(path(7)).unwrap();
    fs::create_dir(path(7)).unwrap();
    fs::write(folder.join("0000000000000009.new"), &bytes).unwrap();
    fs::write(folder.join("notes.txt"), "kept").unwrap();
    assert_eq!(numbers(&first), [6, 8]);
    assert_eq!(numbers(&first), [6, 8]);
    assert!(!path(1).exists() && !folder.join("0000000000000009.new").exists());
    assert!(folder.join("notes.txt").exists());
}

#[test]
fn records_of_another_boot_are_dropped() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    journal(&folder).put(&sample(1)).unwrap();
    let later = HandleJournal::open_in_boot(&folder, [2; 16]).unwrap();
    assert!(numbers(&later).is_empty());
    assert!(!folder.join("0000000000000001.handle").exists());
}

#[test]
fn this_boot_has_a_number() {
    assert_eq!(boot_id().unwrap(), boot_id().unwrap());
    assert_ne!(boot_id().unwrap(), [0; 16]);
}

#[test]
fn numbers_are_reserved() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let journal = journal(&folder);
    assert_eq!(journal.reserved(), None);
    journal.reserve(1 << 40).unwrap();
    assert_eq!(journal.reserved(), Some(1 << 40));
    fs::write(folder.join(NUMBERS), "many").unwrap();
    assert_eq!(journal.reserved(), None);
}

#[test]
fn the_server_keeps_its_guid() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let own = Arc::new(journal(&folder));
    let journals = [Arc::clone(&own)];
    assert_eq!(server_guid(&journals, Guid([1; 16])), Guid([1; 16]));
    assert_eq!(server_guid(&journals, Guid([2; 16])), Guid([1; 16]));
    // A share that was added before the others has a journal without one.
    let first = Arc::new(journal(&place.path().join("first")));
    let journals = [first, own];
    assert_eq!(server_guid(&journals, Guid([2; 16])), Guid([1; 16]));
    assert_eq!(server_guid(&journals[..1], Guid([2; 16])), Guid([1; 16]));
    for broken in [&b"short"[..], &[3; 17]] {
        fs::write(folder.join(SERVER), broken).unwrap();
        assert_eq!(server_guid(&journals[1..], Guid([2; 16])), Guid([2; 16]));
    }
}

#[test]
fn the_last_sign_of_life_is_kept() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let first = journal(&folder);
    let old = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    first.lock.set_modified(old).unwrap();
    drop(first);
    let second = journal(&folder);
    assert_eq!(second.last_alive(), Timestamp::from_unix(1000, 0));
    second.note_alive();
    drop(second);
    assert!(journal(&folder).last_alive() > Timestamp::from_unix(1_600_000_000, 0));
}

/// The folder is known by its descriptor, not by its path.
#[test]
fn a_record_is_removed_from_a_renamed_journal() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let journal = journal(&folder);
    journal.put(&sample(1)).unwrap();
    let away = place.path().join("away");
    fs::rename(&folder, &away).unwrap();
    journal.put(&sample(2)).unwrap();
    assert_eq!(numbers(&journal), [1, 2]);
    journal.remove(OpenId::new(1)).unwrap();
    assert!(!away.join("0000000000000001.handle").exists());
}

#[test]
fn a_record_that_stays_is_no_success() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let journal = journal(&folder);
    fs::create_dir(folder.join("0000000000000001.handle")).unwrap();
    assert!(journal.remove(OpenId::new(1)).is_err());
    assert!(journal.put(&sample(1)).is_err());
}

#[test]
fn the_latest_record_is_first() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let journal = journal(&folder);
    for (id, second) in [(1, 10), (2, 30), (3, 20)] {
        journal.put(&sample(id)).unwrap();
        let record = File::options()
            .write(true)
            .open(folder.join(name_of(OpenId::new(id), RECORD)));
        let written = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        record.unwrap().set_modified(written).unwrap();
    }
    let records = journal.load().unwrap();
    let ids: Vec<_> = records.iter().map(|record| record.open.id.get()).collect();
    assert_eq!(ids, [2, 3, 1]);
}

#[test]
fn a_clock_that_was_set_is_noticed() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("journal");
    let first = journal(&folder);
    assert!(!first.is_clock_kept(), "nothing is known");
    first.note_alive();
    drop(first);
    let second = journal(&folder);
    assert!(second.is_clock_kept());
    let later = std::time::SystemTime::now() + Duration::from_secs(3600);
    second.lock.set_modified(later).unwrap();
    drop(second);
    let third = journal(&folder);
    assert!(!third.is_clock_kept(), "it was seen alive in the future");
    third.note_alive();
    let set = clock_difference() + 2 * CLOCK_STEP_MAX;
    third.lock.write_all_at(&set.to_le_bytes(), 0).unwrap();
    drop(third);
    assert!(!journal(&folder).is_clock_kept());
}
