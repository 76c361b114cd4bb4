//! The record of a persistent open in the journal.
//!
//! ```text
//! "RopewayH"  version 2  length of the body 4  CRC-32 of the body 4  body
//! ```
//! Numbers are little-endian. Nothing in a record is trusted: it may be cut, damaged, or made by somebody
//! else. Decoding never fails otherwise than with an error, and allocates no more than the record is long.

use std::sync::Arc;

use ropeway_smb_proto::server::hub::{
    AppInstance, FileKey, KeptBreak, KeptCaching, KeptDeletion, KeptLock, OpenId, PersistentOpen,
};
use ropeway_smb_wire::create::{AccessMask, CreateAction, CreateOptions, ShareAccess};
use ropeway_smb_wire::create_context::{AppInstanceVersion, LeaseState};
use ropeway_smb_wire::{DecodeError, Guid, LeaseKey, Reader, Text, Writer};
use ropeway_vfs::Timestamp;

const MAGIC: [u8; 8] = *b"RopewayH";
const VERSION: u16 = 1;
/// Length of what precedes the body.
const HEAD_LEN: usize = 8 + 2 + 4 + 4;
/// The longest record: 10,000 locks, and names as long as the protocol allows.
pub(super) const LEN_MAX: usize = 512 << 10;
/// Number of locks in a record, as in `HubLimits`.
const LOCKS_MAX: usize = 10_000;

/// What is kept of a persistent open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The boot of the machine. What clients wrote may not have survived another one.
    pub(crate) boot: [u8; 16],
    /// The name of the share.
    pub(crate) share: String,
    /// When the file was made, where the volume says so.
    pub(crate) birth: Option<Timestamp>,
    /// The options of the CREATE.
    pub(crate) options: CreateOptions,
    /// What the CREATE did.
    pub(crate) action: CreateAction,
    /// Whether the user may change existing bytes of the file.
    pub(crate) may_overwrite: bool,
    /// What the hub knows. Its share is that of the name.
    pub(crate) open: PersistentOpen,
}

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RecordError {
    /// It begins otherwise, or another release wrote it.
    #[error("it is not a record of this release")]
    Version,
    /// Its length or its checksum is wrong.
    #[error("it is cut or damaged")]
    Damaged,
    /// A field is invalid.
    #[error("a field is invalid: {0}")]
    Field(&'static str),
    /// It ends in the middle of a field.
    #[error("{0}")]
    Cut(#[from] DecodeError),
}

/// Which fields follow, and single bits.
mod flag {
    pub(super) const DIRECTORY: u32 = 1;
    pub(super) const DELETE_ON_CLOSE: u32 = 1 << 1;
    pub(super) const REPLAYABLE: u32 = 1 << 2;
    pub(super) const MAY_OVERWRITE: u32 = 1 << 3;
    pub(super) const STREAM: u32 = 1 << 4;
    pub(super) const BIRTH: u32 = 1 << 5;
    pub(super) const APP_INSTANCE: u32 = 1 << 6;
    pub(super) const PARENT_LEASE: u32 = 1 << 7;
    pub(super) const LEASE: u32 = 1 << 8;
    pub(super) const EPOCH: u32 = 1 << 9;
    pub(super) const LOCK_SEQUENCES: u32 = 1 << 10;
    pub(super) const DELETION: u32 = 1 << 11;
    pub(super) const DELETION_LEASE: u32 = 1 << 12;
    pub(super) const APP_INSTANCE_VERSION: u32 = 1 << 13;
    pub(super) const BREAKING: u32 = 1 << 14;
    pub(super) const ALL: u32 = (1 << 15) - 1;
}

impl Record {
    /// Encodes the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(512 + 17 * self.open.locks.len());
        self.encode_body(&mut Writer::new(&mut body));
        let mut bytes = Vec::with_capacity(HEAD_LEN + body.len());
        let mut w = Writer::new(&mut bytes);
        w.bytes(&MAGIC);
        w.u16(VERSION);
        // A body has far less than 4 GiB: the hub limits the locks, the protocol the names.
        w.u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
        w.u32(crc32fast::hash(&body));
        w.bytes(&body);
        bytes
    }

    fn flags(&self) -> u32 {
        let open = &self.open;
        let (lease, epoch) = match open.caching {
            KeptCaching::Oplock(_) => (false, false),
            KeptCaching::Lease { epoch, .. } => (true, epoch.is_some()),
        };
        let deletion = open.deletion.as_ref();
        [
            (open.directory, flag::DIRECTORY),
            (open.delete_on_close, flag::DELETE_ON_CLOSE),
            (open.replayable, flag::REPLAYABLE),
            (self.may_overwrite, flag::MAY_OVERWRITE),
            (open.file.stream.is_some(), flag::STREAM),
            (self.birth.is_some(), flag::BIRTH),
            (open.app_instance.is_some(), flag::APP_INSTANCE),
            (
                open.app_instance
                    .is_some_and(|instance| instance.version.is_some()),
                flag::APP_INSTANCE_VERSION,
            ),
            (open.parent_lease.is_some(), flag::PARENT_LEASE),
            (lease, flag::LEASE),
            (epoch, flag::EPOCH),
            (open.breaking.is_some(), flag::BREAKING),
            (open.lock_sequences.is_some(), flag::LOCK_SEQUENCES),
            (deletion.is_some(), flag::DELETION),
            (
                deletion.is_some_and(|deletion| deletion.parent_lease.is_some()),
                flag::DELETION_LEASE,
            ),
        ]
        .iter()
        .filter(|(is_set, _)| *is_set)
        .fold(0, |flags, (_, flag)| flags | flag)
    }

    fn encode_body(&self, w: &mut Writer<'_>) {
        let open = &self.open;
        w.u32(self.flags());
        w.bytes(&self.boot);
        string(w, &self.share);
        string(w, &open.user);
        text(w, &open.path);
        if let Some(stream) = &open.file.stream {
            text(w, stream);
        }
        w.u64(open.id.get());
        w.bytes(&open.create_guid.0);
        w.bytes(&open.client.0);
        w.u64(open.file.share_volume);
        w.u64(open.file.index);
        if let Some(birth) = self.birth {
            w.bytes(&birth.0.to_le_bytes());
        }
        w.u32(open.access.bits());
        w.u32(open.share_access.bits());
        w.u32(self.options.bits());
        w.u32(self.action.0);
        w.u32(open.timeout_ms);
        w.u16(open.channel_sequence);
        let keys = [
            open.app_instance.map(|instance| instance.id.0),
            open.parent_lease.map(|key| key.0),
        ];
        keys.iter().flatten().for_each(|key| w.bytes(key));
        if let Some(version) = open.app_instance.and_then(|instance| instance.version) {
            w.u64(version.high);
            w.u64(version.low);
        }
        match open.caching {
            KeptCaching::Oplock(state) => w.u32(state.bits()),
            KeptCaching::Lease { key, state, epoch } => {
                w.u32(state.bits());
                w.bytes(&key.0);
                epoch.iter().for_each(|epoch| w.u16(*epoch));
            }
        }
        if let Some(breaking) = open.breaking {
            w.u32(breaking.requested.bits());
            w.u32(breaking.required.bits());
        }
        if let Some(sequences) = &open.lock_sequences {
            w.bytes(&**sequences);
        }
        if let Some(deletion) = &open.deletion {
            string(w, &deletion.user);
            deletion.parent_lease.iter().for_each(|key| w.bytes(&key.0));
        }
        w.u32(u32::try_from(open.locks.len()).unwrap_or(u32::MAX));
        for lock in &open.locks {
            w.u64(lock.offset);
            w.u64(lock.length);
            w.u8(lock.exclusive.into());
        }
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// It is none, or damaged, or of another release.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut r = Reader::new(bytes, "record of a persistent open");
        if r.array::<8>()? != MAGIC || r.u16()? != VERSION {
            return Err(RecordError::Version);
        }
        let (length, sum) = (r.u32()?, r.u32()?);
        let body = r.rest();
        if bytes.len() > LEN_MAX || u32::try_from(body.len()) != Ok(length) || crc32fast::hash(body) != sum {
            return Err(RecordError::Damaged);
        }
        let mut r = Reader::new(body, "record of a persistent open");
        let record = decode_body(&mut r)?;
        match r.remaining() {
            0 => Ok(record),
            _ => Err(RecordError::Field("more than the locks")),
        }
    }
}

fn decode_body(r: &mut Reader<'_>) -> Result<Record, RecordError> {
    let flags = r.u32()?;
    if flags & !flag::ALL != 0 {
        return Err(RecordError::Field("flags"));
    }
    let is = |flag: u32| flags & flag != 0;
    let boot = r.array()?;
    let share = read_string(r)?;
    let user = Arc::from(read_string(r)?);
    let path = read_text(r)?;
    let stream = is(flag::STREAM).then(|| read_text(r)).transpose()?;
    let id = OpenId::new(r.u64()?);
    let (create_guid, client) = (Guid(r.array()?), Guid(r.array()?));
    let file = FileKey {
        share_volume: r.u64()?,
        index: r.u64()?,
        stream,
    };
    let birth = is(flag::BIRTH).then(|| r.array()).transpose()?;
    let access = AccessMask::from_bits_retain(r.u32()?);
    let share_access = ShareAccess::from_bits_retain(r.u32()?);
    let options = CreateOptions::from_bits_retain(r.u32()?);
    let action = CreateAction(r.u32()?);
    let (timeout_ms, channel_sequence) = (r.u32()?, r.u16()?);
    let app_instance = is(flag::APP_INSTANCE).then(|| r.array()).transpose()?;
    let parent_lease = is(flag::PARENT_LEASE).then(|| r.array()).transpose()?;
    let app_instance = decode_app_instance(r, app_instance, is(flag::APP_INSTANCE_VERSION))?;
    let caching = decode_caching(r, is(flag::LEASE), is(flag::EPOCH))?;
    let breaking = is(flag::BREAKING).then(|| decode_break(r)).transpose()?;
    let lock_sequences = is(flag::LOCK_SEQUENCES).then(|| r.array::<64>()).transpose()?;
    let has_lease = is(flag::DELETION_LEASE);
    let deletion = is(flag::DELETION)
        .then(|| decode_deletion(r, has_lease))
        .transpose()?;
    Ok(Record {
        boot,
        share,
        birth: birth.map(|birth| Timestamp(i128::from_le_bytes(birth))),
        options,
        action,
        may_overwrite: is(flag::MAY_OVERWRITE),
        open: PersistentOpen {
            id,
            create_guid,
            client,
            user,
            share_id: 0,
            file,
            path,
            directory: is(flag::DIRECTORY),
            access,
            share_access,
            delete_on_close: is(flag::DELETE_ON_CLOSE),
            timeout_ms,
            app_instance,
            parent_lease: parent_lease.map(LeaseKey),
            channel_sequence,
            replayable: is(flag::REPLAYABLE),
            caching,
            breaking,
            locks: decode_locks(r)?,
            lock_sequences: lock_sequences.map(Box::new),
            deletion,
        },
    })
}

fn decode_app_instance(
    r: &mut Reader<'_>,
    id: Option<[u8; 16]>,
    has_version: bool,
) -> Result<Option<AppInstance>, RecordError> {
    let Some(id) = id else {
        return match has_version {
            true => Err(RecordError::Field("a version of no application")),
            false => Ok(None),
        };
    };
    let version = match has_version {
        true => Some(AppInstanceVersion {
            high: r.u64()?,
            low: r.u64()?,
        }),
        false => None,
    };
    Ok(Some(AppInstance {
        id: Guid(id),
        version,
    }))
}

fn decode_caching(r: &mut Reader<'_>, lease: bool, epoch: bool) -> Result<KeptCaching, RecordError> {
    let state = LeaseState::from_bits_retain(r.u32()?);
    if !lease {
        return Ok(KeptCaching::Oplock(state));
    }
    Ok(KeptCaching::Lease {
        key: LeaseKey(r.array()?),
        state,
        epoch: epoch.then(|| r.u16()).transpose()?,
    })
}

fn decode_deletion(r: &mut Reader<'_>, has_lease: bool) -> Result<KeptDeletion, RecordError> {
    let user = Arc::from(read_string(r)?);
    let parent_lease = has_lease.then(|| r.array()).transpose()?;
    Ok(KeptDeletion {
        user,
        parent_lease: parent_lease.map(LeaseKey),
    })
}

fn decode_break(r: &mut Reader<'_>) -> Result<KeptBreak, RecordError> {
    Ok(KeptBreak {
        requested: LeaseState::from_bits_retain(r.u32()?),
        required: LeaseState::from_bits_retain(r.u32()?),
    })
}

fn decode_locks(r: &mut Reader<'_>) -> Result<Vec<KeptLock>, RecordError> {
    let count = r.u32()? as usize;
    if count > LOCKS_MAX || count > r.remaining() / 17 {
        return Err(RecordError::Field("number of locks"));
    }
    let mut locks = Vec::with_capacity(count);
    for _ in 0..count {
        locks.push(KeptLock {
            offset: r.u64()?,
            length: r.u64()?,
            exclusive: match r.u8()? {
                0 => false,
                1 => true,
                _ => return Err(RecordError::Field("lock")),
            },
        });
    }
    Ok(locks)
}

fn string(w: &mut Writer<'_>, string: &str) {
    w.u32(u32::try_from(string.len()).unwrap_or(u32::MAX));
    w.bytes(string.as_bytes());
}

fn text(w: &mut Writer<'_>, text: &Text) {
    w.u32(u32::try_from(text.wire_len()).unwrap_or(u32::MAX));
    text.write(w);
}

fn read_string(r: &mut Reader<'_>) -> Result<String, RecordError> {
    let length = r.u32()? as usize;
    let bytes = r.bytes(length)?;
    let string = std::str::from_utf8(bytes).map_err(|_| RecordError::Field("string"))?;
    Ok(string.to_owned())
}

fn read_text(r: &mut Reader<'_>) -> Result<Text, RecordError> {
    let length = r.u32()? as usize;
    Text::from_le_bytes(r.bytes(length)?).ok_or(RecordError::Field("text"))
}
