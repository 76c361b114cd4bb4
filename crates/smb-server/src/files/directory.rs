//! QUERY_DIRECTORY ([MS-SMB2] 3.3.5.18): a listing that goes on from request to request.
//!
//! ```text
//! first request: pattern ──▶ Scan: "." ".." ──▶ entries of the store, those that match ──▶ nothing more
//!                                    an entry that does not fit any more waits for the next request
//! ```
//! A pattern without wildcards names one file at most: it is looked up, not listed. What a scan holds is one entry, a
//! pattern of bounded length and the store's own position.

use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::fsctl::reparse::ReparseTag;
use ropeway_smb_wire::info::{AppleRecord, DirectoryClass, DirectoryRecord, DirectoryWriter};
use ropeway_smb_wire::names::{self, NameMapping};
use ropeway_smb_wire::query_directory::{QueryDirectoryFlags, QueryDirectoryRequest};
use ropeway_smb_wire::upcase::upcase;
use ropeway_smb_wire::wildcard;
use ropeway_smb_wire::{NtStatus, Text, Writer};
use ropeway_vfs::store::{NodeOpen, NodeStat};
use ropeway_vfs::{ErrorKind, Kind, Name, RelPath};

use crate::files::short_name::NameView;
use crate::files::{apple, attributes, query_file, status};
use crate::state::open::Open;
use crate::state::scan::{Scan, ScanPosition};
use crate::token::Token;

/// Most bytes of one answer, whatever a client has room for: larger ones only keep others waiting. Windows asks for
/// 64 KiB to 1 MiB.
const RESPONSE_LEN_MAX: usize = 1 << 20;
/// Room that an answer's buffer has at first.
const RESPONSE_LEN_FIRST: usize = 64 << 10;
/// Longest pattern, in units of UTF-16. Names have at most 255, and matching takes time by the product of both lengths.
const PATTERN_UNITS_MAX: usize = 1024;

/// Answers a request; for `apple_token`, who wants the Finder's information, with that in each record.
///
/// # Errors
/// STATUS_INVALID_INFO_CLASS, STATUS_INVALID_PARAMETER (no folder), STATUS_ACCESS_DENIED, STATUS_OBJECT_NAME_INVALID,
/// STATUS_NO_SUCH_FILE, STATUS_NO_MORE_FILES, STATUS_INFO_LENGTH_MISMATCH, STATUS_BUFFER_OVERFLOW, and what the store
/// says.
pub(crate) fn query_directory(
    open: &Open,
    request: &QueryDirectoryRequest,
    view: NameView,
    apple_token: Option<&Token>,
) -> Result<Vec<u8>, NtStatus> {
    let class = DirectoryClass::from_u8(request.information_class).ok_or(NtStatus::INVALID_INFO_CLASS)?;
    if !open.directory {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    if !open.access.contains(AccessMask::LIST_DIRECTORY) {
        return Err(NtStatus::ACCESS_DENIED);
    }
    let pattern = request.pattern.units();
    if pattern.contains(&u16::from(b'\\')) || pattern.len() > PATTERN_UNITS_MAX {
        return Err(NtStatus::OBJECT_NAME_INVALID);
    }
    let length_max = usize::try_from(request.output_buffer_length)
        .unwrap_or(usize::MAX)
        .min(RESPONSE_LEN_MAX);
    if length_max < class.fixed_len() {
        return Err(NtStatus::INFO_LENGTH_MISMATCH);
    }
    let mut scan = open.scan.lock();
    // Paths are asked for once: a rename in between is one before or after.
    let folder = query_file::path(open);
    let scan = prepare(&mut scan, request);
    let page = ResponsePage {
        open,
        folder: &folder,
        class,
        length_max,
        single: request.flags.contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY),
        view,
        apple_token: apple_token.filter(|_| class == DirectoryClass::IdBothDirectory),
    };
    page.fill(scan)
}

/// The scan that a request is about: the one there is, begun anew or with another pattern if the request says so.
///
/// `INDEX_SPECIFIED` is ignored, as by every server whose records have a `FileIndex` of 0 ([MS-SMB2] 3.3.5.18).
fn prepare<'a>(scan: &'a mut Option<Scan>, request: &QueryDirectoryRequest) -> &'a mut Scan {
    let reopens = request.flags.contains(QueryDirectoryFlags::REOPEN);
    let restarts = request.flags.contains(QueryDirectoryFlags::RESTART_SCANS);
    if reopens {
        *scan = None;
    }
    let scan = scan.get_or_insert_with(|| Scan::new(&request.pattern));
    if restarts {
        scan.restart(&request.pattern);
    }
    scan
}

impl Scan {
    fn matches(&self, name: &Text) -> bool {
        wildcard::matches(&self.pattern, name, upcase)
    }

    /// The next entry that matches.
    fn next(&mut self, open: &Open, folder: &RelPath) -> Result<Option<(Text, NodeStat)>, NtStatus> {
        if self.deferred.is_some() {
            return Ok(self.deferred.take());
        }
        loop {
            match &mut self.next {
                ScanPosition::Dot => {
                    self.next = ScanPosition::DotDot;
                    let name = Text::from(".");
                    if self.matches(&name) {
                        return Ok(Some((name, stored(open.node.stat())?)));
                    }
                }
                ScanPosition::DotDot => {
                    self.next = ScanPosition::First;
                    let name = Text::from("..");
                    if self.matches(&name) {
                        return Ok(Some((name, parent_stat(open, folder)?)));
                    }
                }
                ScanPosition::First => {
                    if !wildcard::has_wildcard(&self.pattern) {
                        self.next = ScanPosition::End;
                        return look_up(open, folder, &self.pattern);
                    }
                    self.next = ScanPosition::Entries(stored(open.node.entries())?);
                }
                ScanPosition::Entries(entries) => {
                    let Some((name, stat)) = stored(entries.next())? else {
                        self.next = ScanPosition::End;
                        continue;
                    };
                    let text = names::to_wire(name.as_bytes(), NameMapping::Sfm);
                    if self.matches(&text) {
                        return Ok(Some((text, resolve_link(open, folder, &name, stat))));
                    }
                }
                ScanPosition::End => return Ok(None),
            }
        }
    }
}

/// One answer.
struct ResponsePage<'a> {
    open: &'a Open,
    folder: &'a RelPath,
    class: DirectoryClass,
    length_max: usize,
    single: bool,
    view: NameView,
    apple_token: Option<&'a Token>,
}

impl ResponsePage<'_> {
    fn fill(&self, scan: &mut Scan) -> Result<Vec<u8>, NtStatus> {
        let mut out = Vec::with_capacity(self.length_max.min(RESPONSE_LEN_FIRST));
        let mut writer = Writer::new(&mut out);
        let mut records = DirectoryWriter::new(&writer, self.class, self.length_max);
        let mut count = 0_usize;
        loop {
            let (name, stat) = match scan.next(self.open, self.folder) {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // What was read before is answered; the error comes again.
                Err(_) if count > 0 => break,
                Err(status) => return Err(status),
            };
            let mut record = self.record(&stat, name);
            if !records.push(&mut writer, &record) {
                scan.deferred = Some((std::mem::take(&mut record.name), stat));
                if count == 0 {
                    // There is room for a record, but not for this name.
                    return Err(NtStatus::BUFFER_OVERFLOW);
                }
                break;
            }
            count += 1;
            if self.single {
                break;
            }
        }
        let first = std::mem::take(&mut scan.first);
        match count {
            0 if first => Err(NtStatus::NO_SUCH_FILE),
            0 => Err(NtStatus::NO_MORE_FILES),
            _ => Ok(out),
        }
    }

    /// A short name, if the class has room for one; it is made of the name on disk.
    fn short_name(&self, name: &Text, is_dots: bool) -> Text {
        let has_room = matches!(
            self.class,
            DirectoryClass::BothDirectory | DirectoryClass::IdBothDirectory
        );
        if !has_room || is_dots || !self.view.short_names || self.apple_token.is_some() {
            return Text::default();
        }
        let name = names::from_wire(name, NameMapping::Sfm);
        self.view.short_name(&name).unwrap_or_default()
    }

    fn apple(&self, token: &Token, name: &Text, stat: &NodeStat) -> AppleRecord {
        let path = match name.units() {
            [DOT] => self.folder.clone(),
            [DOT, DOT] => self.folder.parent().unwrap_or_default(),
            _ => match Name::new(&names::from_wire(name, NameMapping::Sfm)) {
                Some(name) => self.folder.join(&name),
                None => return AppleRecord::default(),
            },
        };
        apple::record(&self.open.share, token, &path, stat)
    }

    fn record(&self, stat: &NodeStat, name: Text) -> DirectoryRecord {
        let features = self.open.share.store.features();
        let units = name.units();
        let is_dots = units == [DOT] || units == [DOT, DOT];
        let dot_name = self.view.hide_dot_files && units.first() == Some(&DOT) && !is_dots;
        let is_link = stat.kind == Kind::Symlink;
        DirectoryRecord {
            file_index: 0,
            creation_time: attributes::file_time(stat.created),
            last_access_time: attributes::file_time(stat.accessed),
            last_write_time: attributes::file_time(stat.modified),
            change_time: attributes::file_time(stat.changed),
            end_of_file: attributes::end_of_file(stat),
            allocation_size: attributes::allocation_size(stat, features),
            attributes: attributes::of(stat, dot_name),
            // [MS-FSCC] 2.4.8: a reparse point's tag stands here. The size of extended attributes is not told: it would
            // take a look into every file.
            ea_size: if is_link { ReparseTag::SYMLINK.0 } else { 0 },
            extd_reparse_tag: if is_link { ReparseTag::SYMLINK.0 } else { 0 },
            short_name: self.short_name(&name, is_dots),
            apple: self.apple_token.map(|token| self.apple(token, &name, stat)),
            file_id: u128::from(attributes::index_number(stat.id, features)),
            name,
        }
    }
}

const DOT: u16 = b'.' as u16;

fn stored<T>(result: ropeway_vfs::Result<T>) -> Result<T, NtStatus> {
    result.map_err(|error| status::of(&error))
}

/// How nodes are asked for their attributes.
fn look(link_itself: bool) -> NodeOpen {
    NodeOpen {
        link_itself,
        ..NodeOpen::default()
    }
}

/// Attributes of `..`; nothing above the root is shown.
fn parent_stat(open: &Open, folder: &RelPath) -> Result<NodeStat, NtStatus> {
    match folder.parent() {
        None => stored(open.node.stat()),
        Some(parent) => stored(open.share.store.open(&parent, &look(false))).map(|opened| opened.stat),
    }
}

/// A link is seen as what it leads to; one that leads nowhere, or out of the share, as a link. Who opened the folder with
/// FILE_OPEN_REPARSE_POINT knows of links, and sees all of them as such.
fn resolve_link(open: &Open, folder: &RelPath, name: &Name, stat: NodeStat) -> NodeStat {
    if stat.kind != Kind::Symlink || open.options.contains(CreateOptions::OPEN_REPARSE_POINT) {
        return stat;
    }
    match open.share.store.open(&folder.join(name), &look(false)) {
        Ok(opened) => opened.stat,
        Err(_) => stat,
    }
}

/// The one entry that a pattern without wildcards names.
fn look_up(open: &Open, folder: &RelPath, pattern: &Text) -> Result<Option<(Text, NodeStat)>, NtStatus> {
    let Some(name) = Name::new(&names::from_wire(pattern, NameMapping::Sfm)) else {
        return Ok(None);
    };
    let store = &open.share.store;
    let found = store
        .resolve(&folder.join(&name))
        .and_then(|path| store.open(&path, &look(true)).map(|opened| (path, opened.stat)));
    match found {
        Ok((path, stat)) => {
            let name = path.file_name().unwrap_or(name);
            let text = names::to_wire(name.as_bytes(), NameMapping::Sfm);
            Ok(Some((text, resolve_link(open, folder, &name, stat))))
        }
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NameRefused) => Ok(None),
        Err(error) => Err(status::of(&error)),
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
