//! The private control FOLDER_DIGEST (docs/adr/0036): what a listing of an open folder would show, as a
//! hash.
//!
//! It reads the folder as QUERY_DIRECTORY does, with the same names and attributes, and needs the same
//! right. So it tells nothing that a listing would not.

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::fsctl::private_folder::{
    FOLDER_DIGEST_BEGIN, FolderDigestReply, FolderDigestRequest, FolderItem, FolderRecord,
};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::{FileAttributes, NtStatus, Text};
use ropeway_vfs::store::NodeStat;
use ropeway_vfs::{HashAlgorithm, Kind};

use super::stored;
use crate::files::{attributes, directory, output_buffer, query_file};
use crate::state::open::Open;

/// Most entries of a folder that has a digest: about as many as one QUERY_DIRECTORY returns.
const ENTRIES_MAX: u32 = 8192;

/// An entry with what the reply has of it.
struct Entry {
    item: FolderItem,
    attributes: FileAttributes,
    stat: NodeStat,
}

/// Returns the reply's body for an open folder.
///
/// # Errors
/// STATUS_INVALID_PARAMETER (no folder, a malformed request), STATUS_ACCESS_DENIED,
/// STATUS_NOT_SUPPORTED where a digest cannot stand for the listing, STATUS_BUFFER_TOO_SMALL, and
/// errors of the store.
pub(super) fn digest(open: &Open, body: &[u8], room: usize) -> Result<Vec<u8>, NtStatus> {
    if !open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if !open.access.contains(AccessMask::LIST_DIRECTORY) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let request = FolderDigestRequest::decode(body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
    let entries = read(open, request.entries_max.min(ENTRIES_MAX) as usize)?;
    let features = open.share.store.features();
    let own = stored(open.node.stat())?;
    let parent = directory::parent_stat(open, &query_file::path(open))?;
    let mut reply = FolderDigestReply {
        // At most `ENTRIES_MAX`.
        entries: entries.len() as u32,
        attributes: FileAttributes::default(),
        own: attributes::index_number(own.id, features),
        parent: attributes::index_number(parent.id, features),
        digest: hash(&entries),
        exceptions: Vec::new(),
        folders: Vec::new(),
    };
    let mut files = entries.iter().filter(|entry| entry.item.file.is_some());
    if let Some(first) = files.next() {
        reply.attributes = first.attributes;
    }
    for (index, entry) in entries.iter().enumerate() {
        let stat = &entry.stat;
        match entry.item.file {
            Some(_) if entry.attributes == reply.attributes => {}
            Some(_) => reply.exceptions.push((index as u32, entry.attributes)),
            None => reply.folders.push(FolderRecord {
                creation_time: attributes::file_time(stat.created),
                last_access_time: attributes::file_time(stat.accessed),
                last_write_time: attributes::file_time(stat.modified),
                change_time: attributes::file_time(stat.changed),
                file_id: attributes::index_number(stat.id, features),
                attributes: entry.attributes,
            }),
        }
    }
    if FolderDigestReply::encoded_len(reply.exceptions.len(), reply.folders.len()) > room {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    Ok(output_buffer::encoded(|w| reply.encode(w)))
}

/// Reads all entries, in the order of their names.
fn read(open: &Open, entries_max: usize) -> Result<Vec<Entry>, NtStatus> {
    let hides_dots = open.share.name_view().hide_dot_files;
    let mut listing = stored(open.node.entries())?;
    let mut entries = Vec::new();
    while let Some((name, stat)) = stored(listing.next())? {
        let name: Text = names::to_wire(name.as_bytes(), NameMapping::Sfm);
        let file = match stat.kind {
            Kind::File => Some((
                attributes::end_of_file(&stat),
                attributes::file_time(stat.modified),
            )),
            Kind::Directory => None,
            // A listing may show what a link leads to, and more than a digest has.
            _ => return Err(NtStatus::NOT_SUPPORTED),
        };
        if entries.len() == entries_max {
            return Err(NtStatus::NOT_SUPPORTED);
        }
        let is_dot_name = hides_dots && name.units().first() == Some(&u16::from(b'.'));
        entries.push(Entry {
            attributes: attributes::of(&stat, is_dot_name),
            item: FolderItem { name, file },
            stat,
        });
    }
    entries.sort_unstable_by(|one, other| one.item.order(&other.item));
    let is_twice = |pair: &[Entry]| pair[0].item.name == pair[1].item.name;
    match entries.windows(2).any(is_twice) {
        // Two names on the disk that a share shows alike.
        true => Err(NtStatus::NOT_SUPPORTED),
        false => Ok(entries),
    }
}

fn hash(entries: &[Entry]) -> [u8; 32] {
    let mut bytes = FOLDER_DIGEST_BEGIN.to_vec();
    bytes.extend(output_buffer::encoded(|w| {
        entries.iter().for_each(|entry| entry.item.encode(w));
    }));
    HashAlgorithm::Blake3.hash(&bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ropeway_smb_wire::fsctl::private::{PRIVATE_HEADER_LEN, PrivateMessage, PrivateOperation};

    use super::*;
    use crate::files::fsctl::private;
    use crate::share::Share;
    use crate::testing;

    fn ask(open: &Open, entries_max: u32, output_max: usize) -> Result<FolderDigestReply, NtStatus> {
        let body = output_buffer::encoded(|w| FolderDigestRequest { entries_max }.encode(w));
        let message = PrivateMessage::new(PrivateOperation::FOLDER_DIGEST, &body);
        let input = output_buffer::encoded(|w| message.encode(w));
        let (_, output) = private(open, &input, output_max, &|_, _| false)?;
        Ok(FolderDigestReply::decode(&output[PRIVATE_HEADER_LEN..]).unwrap())
    }

    fn digest_of(open: &Open) -> FolderDigestReply {
        ask(open, 100, 10_000).unwrap()
    }

    fn write(share: &Arc<Share>, name: &str, content: &[u8]) {
        let file = testing::open(share, name, AccessMask::FILE_ALL);
        file.node.write_at(content, 0).unwrap();
    }

    #[test]
    fn a_digest_changes_with_what_a_listing_shows() {
        let share = testing::share();
        let folder = testing::folder(&share, "d");
        let empty = digest_of(&folder);
        assert_eq!((empty.entries, empty.folders.len()), (0, 0));
        write(&share, "d/file", b"one");
        let one = digest_of(&folder);
        assert_eq!(digest_of(&folder), one);
        assert_eq!(one.attributes, FileAttributes::ARCHIVE);
        // The same size at another time.
        write(&share, "d/file", b"two");
        let two = digest_of(&folder);
        write(&share, "d/file", b"longer");
        let longer = digest_of(&folder);
        write(&share, "d/.other", b"");
        let other = digest_of(&folder);
        let hidden = FileAttributes::ARCHIVE | FileAttributes::HIDDEN;
        assert_eq!(
            (other.attributes, &other.exceptions[..]),
            (hidden, &[(1, FileAttributes::ARCHIVE)][..])
        );
        let inner = testing::folder(&share, "d/inner");
        let whole = digest_of(&folder);
        let stat = inner.node.stat().unwrap();
        assert_eq!(
            whole.folders[0].last_write_time,
            attributes::file_time(stat.modified)
        );
        assert_eq!(whole.folders[0].file_id, stat.id.index);
        assert_eq!(whole.own, folder.node.stat().unwrap().id.index);
        let all = [&empty, &one, &two, &longer, &other, &whole];
        for (at, reply) in all.iter().enumerate() {
            let same = all.iter().filter(|other| other.digest == reply.digest).count();
            assert_eq!(same, 1, "{at}");
        }
    }

    #[test]
    fn what_a_digest_cannot_stand_for_has_none() {
        let share = testing::share();
        let folder = testing::folder(&share, "d");
        write(&share, "d/a", b"");
        write(&share, "d/b", b"");
        assert_eq!(ask(&folder, 1, 10_000), Err(NtStatus::NOT_SUPPORTED));
        assert!(ask(&folder, 2, 10_000).is_ok());
        assert_eq!(ask(&folder, 2, 40), Err(NtStatus::BUFFER_TOO_SMALL));
        share.store.symlink(&testing::path("d/link"), b"a").unwrap();
        assert_eq!(ask(&folder, 100, 10_000), Err(NtStatus::NOT_SUPPORTED));
        let file = testing::open(&share, "f", AccessMask::FILE_ALL);
        assert_eq!(ask(&file, 100, 10_000), Err(NtStatus::INVALID_PARAMETER));
    }

    /// What may not be listed has no digest.
    #[test]
    fn the_right_to_list_is_needed() {
        let share = testing::share();
        let mut folder = testing::folder(&share, "d");
        folder.access = AccessMask::FILE_ALL.difference(AccessMask::LIST_DIRECTORY);
        assert_eq!(ask(&folder, 100, 10_000), Err(NtStatus::ACCESS_DENIED));
    }

    #[test]
    fn a_folder_is_read_to_a_bound() {
        let share = testing::share();
        let folder = testing::folder(&share, "d");
        for number in 0..=ENTRIES_MAX {
            write(&share, &format!("d/{number}"), b"");
        }
        assert_eq!(ask(&folder, u32::MAX, 1 << 20), Err(NtStatus::NOT_SUPPORTED));
    }
}
