//! Digests of folders that the server makes (docs/adr/0036), compared with folders of this machine.

use ropeway_smb_wire::create::CreateOptions;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::private::{PrivateMessage, PrivateOperation, PrivateOperations, VERSION};
use ropeway_smb_wire::fsctl::private_folder::{
    FOLDER_DIGEST_BEGIN, FolderDigestReply, FolderDigestRequest, FolderItem, FolderRecord,
};
use ropeway_smb_wire::info::DirectoryRecord;
use ropeway_smb_wire::{FileAttributes, FileTime, Writer};
use ropeway_vfs::{DirEntry, FolderDigest, HashAlgorithm, Kind, Metadata, Name, Op, Origin, RelPath, Result};

use super::compound::{Compound, ioctl_output};
use super::errors::tree_error;
use super::inner::Inner;
use super::{map, paths};
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::open::OpenFile;
use crate::times::{file_time, known};

/// Most entries of a folder whose digest is asked for. Who asks keeps as many of this machine's.
const ENTRIES_MAX: u32 = 4096;
/// Most bytes of a reply: one credit, and 1,300 folders in a folder.
const REPLY_MAX: u32 = 64 << 10;

/// The digest of a folder of a share.
#[derive(Debug)]
pub(crate) struct SmbDigest {
    reply: FolderDigestReply,
    volume: u64,
    /// What is known of the extended attributes of entries ([`Inner::record`]).
    has_xattrs: Option<bool>,
}

impl Inner {
    /// Asks the server for a digest, in one round trip; `None` if it has none.
    ///
    /// # Errors
    /// The connection, or a reply that makes no sense. That the folder does not exist or may not be
    /// listed is no error here: its listing tells.
    pub(crate) async fn folder_digest(&self, dir: &RelPath) -> Result<Option<SmbDigest>> {
        if !self.share.inner().private.has(PrivateOperations::FOLDER_DIGEST) {
            return Ok(None);
        }
        let text = self.base.text(Op::List, dir)?;
        // What came with the connection costs no round trip. Nodes in a cloud are listed otherwise.
        if self.listing_cache.names(&text).is_some() || self.is_content_shown(dir) {
            return Ok(None);
        }
        let mut open = OpenFile::directory();
        open.options |= CreateOptions::OPEN_REPARSE_POINT;
        let mut body = Vec::new();
        let request = FolderDigestRequest {
            entries_max: ENTRIES_MAX,
        };
        request.encode(&mut Writer::new(&mut body));
        let mut input = Vec::new();
        PrivateMessage::new(PrivateOperation::FOLDER_DIGEST, &body).encode(&mut Writer::new(&mut input));
        let output_max = REPLY_MAX.min(self.share.limits().transact_max);
        let asked = Compound::open("list", &text, &open).ioctl(CtlCode::PRIVATE, input, output_max);
        let answer: ClientResult<FolderDigestReply> = async {
            let reply = asked.run(&self.share).await?;
            let message = PrivateMessage::decode(ioctl_output(&reply)?)?;
            if (message.version, message.operation) != (VERSION, PrivateOperation::FOLDER_DIGEST) {
                let sentence = "the reply to a private control is another one's";
                return Err(ClientError::PeerMisbehaved(sentence.to_owned()));
            }
            Ok(FolderDigestReply::decode(message.body)?)
        }
        .await;
        match answer {
            Ok(reply) => Ok(Some(SmbDigest {
                reply,
                volume: self.volume,
                has_xattrs: self.record(&DirectoryRecord::default()).has_xattrs,
            })),
            Err(error) if error.status().is_some() => Ok(None),
            Err(error) => Err(tree_error(Op::List, dir, error)),
        }
    }
}

/// An entry of the folder on this machine as a share would have it; `None` if that cannot be told.
fn item_of(entry: &DirEntry) -> Option<FolderItem> {
    let metadata = entry.metadata.as_ref().ok()?;
    let file = match metadata.kind {
        Kind::File => {
            let time = file_time(metadata.modified.known()?);
            // A time that a listing would show, and as the same.
            known(time)?;
            Some((metadata.size, time))
        }
        Kind::Directory => None,
        _ => return None,
    };
    let name = paths::wire_name(&entry.name);
    (paths::name_of(&name)? == entry.name).then_some(FolderItem { name, file })
}

impl SmbDigest {
    /// Returns the metadata that a listing has of a file, as far as it is known.
    fn file(&self, (size, time): (u64, FileTime), attributes: FileAttributes) -> Option<Metadata> {
        let is_other = attributes.intersects(FileAttributes::DIRECTORY | FileAttributes::REPARSE_POINT);
        let record = DirectoryRecord {
            last_write_time: time,
            end_of_file: size,
            attributes,
            ..DirectoryRecord::default()
        };
        (!is_other).then(|| Metadata {
            allocated: None,
            has_xattrs: self.has_xattrs,
            ..map::record(&record, self.volume)
        })
    }

    /// Returns the metadata that a listing has of a folder.
    fn folder(&self, folder: &FolderRecord) -> Option<Metadata> {
        let is_plain = folder.attributes.contains(FileAttributes::DIRECTORY)
            && !folder.attributes.contains(FileAttributes::REPARSE_POINT);
        let record = DirectoryRecord {
            creation_time: folder.creation_time,
            last_access_time: folder.last_access_time,
            last_write_time: folder.last_write_time,
            change_time: folder.change_time,
            attributes: folder.attributes,
            file_id: u128::from(folder.file_id),
            ..DirectoryRecord::default()
        };
        is_plain.then(|| Metadata {
            has_xattrs: self.has_xattrs,
            ..map::record(&record, self.volume)
        })
    }
}

impl FolderDigest for SmbDigest {
    fn entries(&self, twin: &[DirEntry]) -> Option<Vec<DirEntry>> {
        if twin.len() != self.reply.entries as usize {
            return None;
        }
        let items: Option<Vec<FolderItem>> = twin.iter().map(item_of).collect();
        let mut items: Vec<(FolderItem, &Name)> = items?
            .into_iter()
            .zip(twin.iter().map(|entry| &entry.name))
            .collect();
        items.sort_unstable_by(|(one, _), (other, _)| one.order(other));
        let mut bytes = FOLDER_DIGEST_BEGIN.to_vec();
        let mut writer = Writer::new(&mut bytes);
        items.iter().for_each(|(item, _)| item.encode(&mut writer));
        if HashAlgorithm::Blake3.hash(&bytes) != self.reply.digest {
            return None;
        }
        let mut exceptions = self.reply.exceptions.iter().peekable();
        let mut folders = self.reply.folders.iter();
        let mut entries = Vec::with_capacity(items.len());
        for (index, (item, name)) in items.into_iter().enumerate() {
            let exception = exceptions.next_if(|(at, _)| *at as usize == index);
            let metadata = match (item.file, exception) {
                (Some(file), exception) => {
                    let attributes = exception.map_or(self.reply.attributes, |(_, attributes)| *attributes);
                    self.file(file, attributes)?
                }
                (None, None) => self.folder(folders.next()?)?,
                (None, Some(_)) => return None,
            };
            entries.push(DirEntry {
                name: name.clone(),
                metadata: Ok(metadata),
            });
        }
        // What is left over belongs to no entry: the answer makes no sense.
        (exceptions.next().is_none() && folders.next().is_none()).then_some(entries)
    }

    fn origin(&self) -> Option<Origin> {
        Some(Origin {
            own: map::id(self.volume, self.reply.own),
            parent: map::id(self.volume, self.reply.parent),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ropeway_vfs::Timestamp;

    use super::*;

    fn node(name: &str, kind: Kind, size: u64, time: i128) -> DirEntry {
        DirEntry {
            name: Name::new(name.as_bytes()).unwrap(),
            metadata: Ok(Metadata::bare(kind, size, Timestamp(time))),
        }
    }

    /// What an honest server answers of these entries; `odd` is a file with other attributes.
    fn answer(entries: &[DirEntry], odd: Option<&str>) -> SmbDigest {
        let mut items: Vec<FolderItem> = entries.iter().map(|entry| item_of(entry).unwrap()).collect();
        items.sort_by(FolderItem::order);
        let mut bytes = FOLDER_DIGEST_BEGIN.to_vec();
        let mut writer = Writer::new(&mut bytes);
        items.iter().for_each(|item| item.encode(&mut writer));
        let at = odd.and_then(|odd| items.iter().position(|item| item.name == odd.into()));
        let folders = items.iter().enumerate().filter(|(_, item)| item.file.is_none());
        let reply = FolderDigestReply {
            entries: items.len() as u32,
            attributes: FileAttributes::ARCHIVE,
            own: 1,
            parent: 2,
            digest: HashAlgorithm::Blake3.hash(&bytes),
            exceptions: at
                .map(|at| (at as u32, FileAttributes::HIDDEN))
                .into_iter()
                .collect(),
            folders: folders
                .map(|(index, _)| FolderRecord {
                    creation_time: FileTime(116_444_736_000_000_001),
                    last_access_time: FileTime(0),
                    last_write_time: FileTime(116_444_736_000_000_002),
                    change_time: FileTime(116_444_736_000_000_003),
                    file_id: index as u64 + 100,
                    attributes: FileAttributes::DIRECTORY,
                })
                .collect(),
        };
        SmbDigest {
            reply,
            volume: 9,
            has_xattrs: None,
        }
    }

    fn sample() -> Vec<DirEntry> {
        vec![
            node("z", Kind::File, 5, 700),
            node("d", Kind::Directory, 0, 1),
            node("a", Kind::File, 0, 1_700_000_000_000_000_123),
            node("ä b", Kind::Directory, 0, 1),
        ]
    }

    #[test]
    fn entries_are_those_of_a_listing() {
        let twin = sample();
        let found = answer(&twin, Some("z")).entries(&twin).unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|entry| (entry.name.to_string(), entry.metadata.as_ref().unwrap()))
            .collect();
        let names: Vec<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "d", "z", "ä b"]);
        assert_eq!(
            shown[0].1.modified,
            Timestamp(1_700_000_000_000_000_100),
            "as a share has it"
        );
        assert_eq!(shown[0].1.dos_attributes, Some(FileAttributes::ARCHIVE.bits()));
        assert_eq!(
            (shown[2].1.size, shown[2].1.dos_attributes),
            (5, Some(FileAttributes::HIDDEN.bits()))
        );
        assert_eq!(
            (shown[0].1.id, shown[0].1.allocated, shown[0].1.created),
            (None, None, None)
        );
        for (at, folder) in [shown[1].1, shown[3].1].into_iter().enumerate() {
            assert_eq!(folder.id, map::id(9, [101, 103][at]));
            assert_eq!(
                (folder.created, folder.modified),
                (Some(Timestamp(100)), Timestamp(200))
            );
            assert_eq!(
                (folder.changed, folder.kind),
                (Some(Timestamp(300)), Kind::Directory)
            );
        }
    }

    #[test]
    fn what_differs_is_seen() {
        let digest = answer(&sample(), None);
        assert!(digest.entries(&sample()).is_some());
        let mut reordered = sample();
        reordered.reverse();
        assert!(digest.entries(&reordered).is_some());
        for change in 0..7 {
            let mut twin = sample();
            match change {
                0 => twin[0] = node("z", Kind::File, 6, 700),
                1 => twin[0] = node("z", Kind::File, 5, 800),
                2 => twin[0] = node("Z", Kind::File, 5, 700),
                3 => twin[0] = node("z", Kind::Directory, 5, 700),
                4 => drop(twin.pop()),
                5 => twin.push(node("more", Kind::File, 0, 0)),
                _ => twin[0] = node("z", Kind::Symlink, 5, 700),
            }
            assert!(digest.entries(&twin).is_none(), "{change}");
        }
    }

    #[test]
    fn answers_that_make_no_sense_are_not_used() {
        let twin = sample();
        let good = || answer(&twin, None);
        let mut bad = [good(), good(), good(), good(), good()];
        bad[0].reply.folders.pop();
        bad[1].reply.folders.push(good().reply.folders[0]);
        // An exception for a folder.
        bad[2].reply.exceptions.push((1, FileAttributes::HIDDEN));
        bad[3].reply.attributes = FileAttributes::REPARSE_POINT;
        bad[4].reply.folders[0].attributes = FileAttributes::ARCHIVE;
        for (at, bad) in bad.iter().enumerate() {
            assert!(bad.entries(&twin).is_none(), "{at}");
        }
    }

    proptest! {
        /// Whatever a server sends, a listing that it leads to has the names, sizes and times of the twin.
        #[test]
        fn no_answer_leads_to_other_names(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), keeps_hash: bool,
        ) {
            let twin = sample();
            let mut digest = answer(&twin, None);
            if let Ok(reply) = FolderDigestReply::decode(&bytes) {
                let hash = digest.reply.digest;
                digest.reply = reply;
                if keeps_hash {
                    digest.reply.digest = hash;
                }
            }
            if let Some(found) = digest.entries(&twin) {
                let mut names: Vec<_> = found.into_iter().map(|entry| entry.name).collect();
                let mut wanted: Vec<_> = twin.into_iter().map(|entry| entry.name).collect();
                names.sort();
                wanted.sort();
                prop_assert_eq!(names, wanted);
            }
        }
    }
}
