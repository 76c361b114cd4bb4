//! Commands on paths: DELETE, RENAME, NT_RENAME, CREATE_DIRECTORY, DELETE_DIRECTORY,
//! CHECK_DIRECTORY ([MS-CIFS] 3.3.5.4 to 3.3.5.10, 3.3.5.52).
//!
//! A path whose last name is a symbolic link means the link.

use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions, ShareAccess};
use ropeway_smb_wire::info::{
    DirectoryClass, DirectoryRecords, FileInfoClass, FileLinkInformation, FileRenameInformation, Information,
};
use ropeway_smb_wire::{FileAttributes, NtStatus, Text, Writer, wildcard};
use ropeway_smb1::wire::close::encode_empty;
use ropeway_smb1::wire::path::{DeleteRequest, NtRenameRequest, NtRenameWords, PathRequest, RenameRequest};

use crate::calls::Open;
use crate::conversation::{Call, Conversation, Outcome, done};
use crate::find::{is_shown, split};
use crate::line::{Fault, Line, Place};
use crate::open::{joined, parent};

/// Maximum number of files that one DELETE removes. A guess.
const DELETED_MAX: usize = 100_000;

/// The entry itself, if it is a link.
fn itself(name: Text, access: AccessMask, options: CreateOptions) -> Open {
    Open {
        options: options | CreateOptions::OPEN_REPARSE_POINT,
        ..Open::existing(name, access)
    }
}

/// Marks an entry for deletion and closes it. `attributes`: of files that may be deleted besides
/// ordinary ones.
fn remove(
    line: &mut Line,
    place: Place,
    name: Text,
    options: CreateOptions,
    attributes: Option<u16>,
) -> Result<(), Fault> {
    let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES;
    let mut open = itself(name, access, options);
    if options.contains(CreateOptions::NON_DIRECTORY_FILE) {
        // Files that are open are not deleted.
        open.sharing = ShareAccess::empty();
    }
    line.with(place, open, |line, opened| {
        if attributes.is_some_and(|attributes| !is_shown(opened.attributes, attributes)) {
            return Err(NtStatus::NO_SUCH_FILE.into());
        }
        line.set(place, opened.id, FileInfoClass::Disposition, &[1])
    })
}

impl Conversation {
    pub(crate) fn delete(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = DeleteRequest::decode(call.block, call.is_unicode())?;
        let place = self.disk(&call.header)?.place;
        let path = self.path(&request.path);
        let attributes = request.search_attributes;
        let (folder, pattern) = split(&path);
        if !wildcard::has_wildcard(&pattern) {
            remove(
                &mut self.line,
                place,
                path,
                CreateOptions::NON_DIRECTORY_FILE,
                Some(attributes),
            )?;
            return done(encode_empty);
        }
        let names = self.matching(place, &folder, &pattern, attributes)?;
        if names.is_empty() {
            return Err(NtStatus::NO_SUCH_FILE.into());
        }
        for name in names {
            let path = joined(&folder, &name);
            remove(
                &mut self.line,
                place,
                path,
                CreateOptions::NON_DIRECTORY_FILE,
                None,
            )?;
        }
        done(encode_empty)
    }

    /// Returns the names of the files in a folder that match a pattern and have no other attributes
    /// than these.
    fn matching(
        &mut self,
        place: Place,
        folder: &Text,
        pattern: &Text,
        attributes: u16,
    ) -> Result<Vec<Text>, Fault> {
        let access = AccessMask::LIST_DIRECTORY | AccessMask::READ_ATTRIBUTES;
        let mut open = Open::existing(folder.clone(), access);
        open.options = CreateOptions::DIRECTORY_FILE;
        self.line.with(place, open, |line, opened| {
            let mut names = Vec::new();
            loop {
                let listed = match line.list(place, opened.id, pattern, false) {
                    Err(Fault::Status(NtStatus::NO_SUCH_FILE)) => Vec::new(),
                    listed => listed?,
                };
                if listed.is_empty() {
                    return Ok(names);
                }
                let records = DirectoryRecords::new(&listed, DirectoryClass::IdBothDirectory).flatten();
                let files = records.filter(|record| {
                    !record.attributes.contains(FileAttributes::DIRECTORY)
                        && is_shown(record.attributes, attributes)
                });
                names.extend(files.map(|record| record.name));
                if names.len() > DELETED_MAX {
                    return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
                }
            }
        })
    }

    pub(crate) fn rename(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = RenameRequest::decode(call.block, call.is_unicode())?;
        let (from, to) = (self.path(&request.from), self.path(&request.to));
        self.move_to(call, from, to, false)
    }

    pub(crate) fn nt_rename(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = NtRenameRequest::decode(call.block, call.is_unicode())?;
        let (from, to) = (self.path(&request.from), self.path(&request.to));
        match request.words.information_level {
            NtRenameWords::RENAME => self.move_to(call, from, to, false),
            NtRenameWords::LINK => self.move_to(call, from, to, true),
            _ => Err(NtStatus::INVALID_PARAMETER.into()),
        }
    }

    /// Renames or links an entry. Nothing is replaced. Patterns are not supported.
    fn move_to(&mut self, call: &Call<'_>, from: Text, to: Text, is_link: bool) -> Outcome {
        let place = self.disk(&call.header)?.place;
        if wildcard::has_wildcard(&from) || wildcard::has_wildcard(&to) {
            return Err(NtStatus::OBJECT_NAME_INVALID.into());
        }
        let access = match is_link {
            true => AccessMask::READ_ATTRIBUTES | AccessMask::WRITE_ATTRIBUTES,
            false => AccessMask::DELETE | AccessMask::READ_ATTRIBUTES,
        };
        let options = CreateOptions::default();
        self.line
            .with(place, itself(from, access, options), |line, opened| {
                set_name(line, place, opened.id, is_link, false, to)
            })?;
        done(encode_empty)
    }

    pub(crate) fn create_directory(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = PathRequest::decode(call.block, call.is_unicode())?;
        let place = self.disk(&call.header)?.place;
        let path = self.path(&request.path);
        self.make_directory(place, path)?;
        done(encode_empty)
    }

    /// Makes a folder.
    pub(crate) fn make_directory(&mut self, place: Place, path: Text) -> Result<(), Fault> {
        let mut open = Open::existing(path, AccessMask::READ_ATTRIBUTES);
        open.disposition = CreateDisposition::Create;
        open.options = CreateOptions::DIRECTORY_FILE;
        self.line.with(place, open, |_, _| Ok(()))
    }

    pub(crate) fn delete_directory(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = PathRequest::decode(call.block, call.is_unicode())?;
        let place = self.disk(&call.header)?.place;
        let path = self.path(&request.path);
        remove(&mut self.line, place, path, CreateOptions::DIRECTORY_FILE, None)?;
        done(encode_empty)
    }

    pub(crate) fn check_directory(&mut self, call: &mut Call<'_>) -> Outcome {
        let request = PathRequest::decode(call.block, call.is_unicode())?;
        let place = self.disk(&call.header)?.place;
        let path = self.path(&request.path);
        let folder = parent(&path);
        let mut open = Open::existing(path, AccessMask::READ_ATTRIBUTES);
        open.options = CreateOptions::DIRECTORY_FILE;
        match self.line.with(place, open, |_, _| Ok(())) {
            Ok(()) => done(encode_empty),
            // Old clients know one error for both ([MS-CIFS] 2.2.4.17.2).
            Err(Fault::Status(NtStatus::OBJECT_NAME_NOT_FOUND)) if folder.is_empty() => {
                Err(NtStatus::OBJECT_PATH_NOT_FOUND.into())
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Gives an open file another name, or one more.
pub(crate) fn set_name(
    line: &mut Line,
    place: Place,
    file: ropeway_smb_wire::FileId,
    is_link: bool,
    replace_if_exists: bool,
    name: Text,
) -> Result<(), Fault> {
    let mut buffer = Vec::new();
    let mut w = Writer::new(&mut buffer);
    let class = match is_link {
        true => {
            FileLinkInformation {
                replace_if_exists,
                name,
            }
            .encode(&mut w);
            FileInfoClass::Link
        }
        false => {
            FileRenameInformation {
                replace_if_exists,
                name,
            }
            .encode(&mut w);
            FileInfoClass::Rename
        }
    };
    line.set(place, file, class, &buffer)
}
