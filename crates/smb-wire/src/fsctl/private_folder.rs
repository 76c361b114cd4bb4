//! Digests of folders: operation [`FOLDER_DIGEST`](super::private::PrivateOperation::FOLDER_DIGEST)
//! of the private controls (docs/adr/0036).
//!
//! The digest stands for what a QUERY_DIRECTORY of the open folder would return of its files: names,
//! sizes, times of the last write. It is the BLAKE3 hash of [`FOLDER_DIGEST_BEGIN`] and all entries
//! but `.` and `..`, in the order of their names ([`FolderItem`]). The rest of a listing comes with
//! it: the attributes of files, which are mostly the same, and all fields of folders, which are few.

use std::cmp::Ordering;

use crate::{DecodeErrorKind, FileAttributes, FileTime, Reader, Result, Text, Writer};

/// What is hashed first: a digest is never the hash of anything else.
pub const FOLDER_DIGEST_BEGIN: &[u8] = b"ropeway folder 1\0";

/// Length of a digest in bytes: BLAKE3.
pub const FOLDER_DIGEST_LEN: usize = 32;

/// Length in bytes of the reply without its lists.
const FIXED_LEN: usize = 4 * 4 + 2 * 8 + FOLDER_DIGEST_LEN;
/// Length in bytes of an exception.
pub const EXCEPTION_LEN: usize = 8;
/// Length in bytes of a folder.
pub const FOLDER_LEN: usize = 5 * 8 + 8;

/// Request of [`FOLDER_DIGEST`](super::private::PrivateOperation::FOLDER_DIGEST), on a folder that is
/// open for listing. The server answers STATUS_NOT_SUPPORTED where a digest cannot stand for the
/// listing: the folder has more entries, or one that is neither file nor folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderDigestRequest {
    /// Largest number of entries that are of use.
    pub entries_max: u32,
}

impl FolderDigestRequest {
    /// Reads the body.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(body, "FOLDER_DIGEST request");
        let entries_max = reader.u32()?;
        reader.skip(4)?;
        Ok(Self { entries_max })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.entries_max);
        w.zeros(4);
    }
}

/// One entry of a folder, as far as the digest covers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderItem {
    /// Its name.
    pub name: Text,
    /// Size and time of the last write of a file; `None` for a folder.
    pub file: Option<(u64, FileTime)>,
}

impl FolderItem {
    /// Compares the names by their UTF-16 units. A folder has no two equal ones.
    pub fn order(&self, other: &Self) -> Ordering {
        self.name.units().cmp(other.name.units())
    }

    /// Appends what is hashed of it. No two lists of entries are encoded alike: each has its length.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(u32::try_from(self.name.units().len()).unwrap_or(u32::MAX));
        self.name.write(w);
        match self.file {
            Some((size, written)) => {
                w.u8(1);
                w.u64(size);
                w.u64(written.0);
            }
            None => w.u8(0),
        }
    }
}

/// A folder in a reply: the fields that a listing has of it, except the name. Folders are in the
/// order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolderRecord {
    /// As in a listing.
    pub creation_time: FileTime,
    /// As in a listing.
    pub last_access_time: FileTime,
    /// As in a listing.
    pub last_write_time: FileTime,
    /// As in a listing.
    pub change_time: FileTime,
    /// As in a listing.
    pub file_id: u64,
    /// As in a listing.
    pub attributes: FileAttributes,
}

impl FolderRecord {
    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let record = Self {
            creation_time: FileTime(reader.u64()?),
            last_access_time: FileTime(reader.u64()?),
            last_write_time: FileTime(reader.u64()?),
            change_time: FileTime(reader.u64()?),
            file_id: reader.u64()?,
            attributes: FileAttributes::from_bits_retain(reader.u32()?),
        };
        reader.skip(4)?;
        Ok(record)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.creation_time.0);
        w.u64(self.last_access_time.0);
        w.u64(self.last_write_time.0);
        w.u64(self.change_time.0);
        w.u64(self.file_id);
        w.u32(self.attributes.bits());
        w.zeros(4);
    }
}

/// Reply to [`FOLDER_DIGEST`](super::private::PrivateOperation::FOLDER_DIGEST).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderDigestReply {
    /// Number of entries, `.` and `..` not counted.
    pub entries: u32,
    /// Attributes of the files, unless an exception has them.
    pub attributes: FileAttributes,
    /// File number of the folder (`.`).
    pub own: u64,
    /// File number of its parent (`..`).
    pub parent: u64,
    /// The digest.
    pub digest: [u8; FOLDER_DIGEST_LEN],
    /// Files with other attributes: their indices among all entries in the order of names, ascending.
    pub exceptions: Vec<(u32, FileAttributes)>,
    /// All folders.
    pub folders: Vec<FolderRecord>,
}

impl FolderDigestReply {
    /// Returns the length of the body in bytes with this many exceptions and folders.
    pub fn encoded_len(exceptions: usize, folders: usize) -> usize {
        FIXED_LEN + exceptions * EXCEPTION_LEN + folders * FOLDER_LEN
    }

    /// Reads the body.
    ///
    /// # Errors
    /// Truncation; more exceptions and folders than entries; exceptions that are not in order.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(body, "FOLDER_DIGEST reply");
        let entries = reader.u32()?;
        let attributes = FileAttributes::from_bits_retain(reader.u32()?);
        let (exception_count, folder_count) = (reader.u32()?, reader.u32()?);
        let (own, parent) = (reader.u64()?, reader.u64()?);
        let digest = reader.array()?;
        let left = reader.remaining() as u64;
        let needed =
            u64::from(exception_count) * EXCEPTION_LEN as u64 + u64::from(folder_count) * FOLDER_LEN as u64;
        let counted = u64::from(exception_count) + u64::from(folder_count);
        if needed != left || counted > u64::from(entries) {
            return Err(reader.error(DecodeErrorKind::Bounds));
        }
        // Both counts are bounded by the bytes that are there.
        let mut exceptions: Vec<(u32, FileAttributes)> = Vec::with_capacity(exception_count as usize);
        for _ in 0..exception_count {
            let index = reader.u32()?;
            if index >= entries || exceptions.last().is_some_and(|(last, _)| *last >= index) {
                return Err(reader.error(DecodeErrorKind::Value));
            }
            exceptions.push((index, FileAttributes::from_bits_retain(reader.u32()?)));
        }
        let mut folders = Vec::with_capacity(folder_count as usize);
        for _ in 0..folder_count {
            folders.push(FolderRecord::decode(&mut reader)?);
        }
        Ok(Self {
            entries,
            attributes,
            own,
            parent,
            digest,
            exceptions,
            folders,
        })
    }

    /// Appends the body.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        w.u32(self.entries);
        w.u32(self.attributes.bits());
        w.u32(count(self.exceptions.len()));
        w.u32(count(self.folders.len()));
        w.u64(self.own);
        w.u64(self.parent);
        w.bytes(&self.digest);
        for (index, attributes) in &self.exceptions {
            w.u32(*index);
            w.u32(attributes.bits());
        }
        for folder in &self.folders {
            folder.encode(w);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::{attack, structure};
    use proptest::prelude::*;

    fn reply(entries: u32, exceptions: &[u32], folders: usize) -> FolderDigestReply {
        FolderDigestReply {
            entries,
            attributes: FileAttributes::ARCHIVE,
            own: 7,
            parent: 8,
            digest: [9; 32],
            exceptions: exceptions
                .iter()
                .map(|at| (*at, FileAttributes::HIDDEN))
                .collect(),
            folders: vec![
                FolderRecord {
                    creation_time: FileTime(1),
                    last_access_time: FileTime(2),
                    last_write_time: FileTime(3),
                    change_time: FileTime(4),
                    file_id: 5,
                    attributes: FileAttributes::DIRECTORY,
                };
                folders
            ],
        }
    }

    fn item() -> impl Strategy<Value = FolderItem> {
        let name = proptest::collection::vec(0_u16..4, 0..4);
        let file = proptest::option::of((0_u64..3, 0_u64..3));
        (name, file).prop_map(|(name, file)| FolderItem {
            name: Text::from_units(name),
            file: file.map(|(size, time)| (size, FileTime(time))),
        })
    }

    proptest! {
        #[test]
        fn round_trip(
            entries_max: u32, exceptions in proptest::collection::btree_set(0_u32..100, 0..20), folders in 0_usize..20,
            times: [u64; 4], attributes: u32, file_id: u64, digest: [u8; 32],
        ) {
            let request = FolderDigestRequest { entries_max };
            prop_assert_eq!(FolderDigestRequest::decode(&structure(|w| request.encode(w))), Ok(request));
            let exceptions: Vec<u32> = exceptions.into_iter().collect();
            let mut reply = reply(100, &exceptions, folders);
            (reply.digest, reply.own) = (digest, file_id);
            reply.attributes = FileAttributes::from_bits_retain(attributes);
            for folder in &mut reply.folders {
                folder.creation_time = FileTime(times[0]);
                folder.last_access_time = FileTime(times[1]);
                folder.last_write_time = FileTime(times[2]);
                folder.change_time = FileTime(times[3]);
                folder.attributes = FileAttributes::from_bits_retain(attributes);
            }
            let bytes = structure(|w| reply.encode(w));
            prop_assert_eq!(bytes.len(), FolderDigestReply::encoded_len(exceptions.len(), folders));
            prop_assert_eq!(FolderDigestReply::decode(&bytes), Ok(reply));
        }

        /// Else two folders with other content might have the same digest.
        #[test]
        fn other_entries_are_encoded_otherwise(
            one in proptest::collection::vec(item(), 0..4), other in proptest::collection::vec(item(), 0..4),
        ) {
            let bytes = |items: &[FolderItem]| structure(|w| items.iter().for_each(|item| item.encode(w)));
            prop_assert_eq!(one == other, bytes(&one) == bytes(&other));
        }
    }

    #[test]
    fn counts_that_lie_are_malformed() {
        let good = structure(|w| reply(4, &[0, 3], 2).encode(w));
        assert!(FolderDigestReply::decode(&good).is_ok());
        for bad in [
            reply(3, &[0, 2], 2),
            reply(4, &[0, 4], 0),
            reply(4, &[2, 2], 0),
            reply(4, &[2, 1], 0),
        ] {
            assert!(
                FolderDigestReply::decode(&structure(|w| bad.encode(w))).is_err(),
                "{bad:?}"
            );
        }
        for count in [8, 12] {
            let mut bytes = good.clone();
            bytes[count..count + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            assert!(FolderDigestReply::decode(&bytes).is_err());
        }
        assert!(FolderDigestReply::decode(&[&good[..], &[0]].concat()).is_err());
        attack(&good, 0, |bytes| {
            (
                FolderDigestReply::decode(bytes).is_ok(),
                FolderDigestRequest::decode(bytes).is_ok(),
            )
        });
    }
}
