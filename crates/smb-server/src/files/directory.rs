//! QUERY_DIRECTORY ([MS-SMB2] 3.3.5.18): listings that continue from request to request.
//!
//! ```text
//! first request: pattern ─▶ Scan: "." ".." ─▶ matching entries of the store ─▶ end
//!                              an entry that does not fit waits for the next request
//! ```
//!
//! A pattern without wildcards matches at most one file, so that file is looked up instead of
//! listed.

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

use crate::files::short_name::{self, NameView};
use crate::files::{apple, attributes, query_file, status};
use crate::state::open::Open;
use crate::state::scan::{Scan, ScanPosition};
use crate::token::Token;

/// Maximum length of a response in bytes, whatever the client allows: longer ones would only delay
/// others. Windows asks for 64 KiB to 1 MiB.
const RESPONSE_LEN_MAX: usize = 1 << 20;
/// Initial capacity of the response in bytes.
const RESPONSE_LEN_FIRST: usize = 64 << 10;
/// Longest pattern in UTF-16 units. Names have at most 255. Matching takes time proportional to the
/// product of both lengths.
const PATTERN_UNITS_MAX: usize = 1024;

/// Answers a request. With `apple_token`, records carry additional information for that user's
/// Finder.
///
/// # Errors
/// STATUS_INVALID_INFO_CLASS, STATUS_INVALID_PARAMETER (not a folder), STATUS_ACCESS_DENIED,
/// STATUS_OBJECT_NAME_INVALID, STATUS_NO_SUCH_FILE, STATUS_NO_MORE_FILES,
/// STATUS_INFO_LENGTH_MISMATCH, STATUS_BUFFER_OVERFLOW, and errors of the store.
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
    // The path is read once, so a concurrent rename takes effect before or after the request.
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

/// Returns the scan for a request. It restarts, possibly with another pattern, if the request says
/// so.
///
/// `INDEX_SPECIFIED` is ignored, as by every server that reports a `FileIndex` of 0 ([MS-SMB2]
/// 3.3.5.18).
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

    /// Returns the next matching entry.
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

/// One response.
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
                // The entries read so far are sent; the error occurs again in the next request.
                Err(_) if count > 0 => break,
                Err(status) => return Err(status),
            };
            let mut record = self.record(&stat, name);
            if !records.push(&mut writer, &record) {
                scan.deferred = Some((std::mem::take(&mut record.name), stat));
                if count == 0 {
                    // A record fits, but not with this name.
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

    /// Returns the short name if the class has a field for it. It depends on the name on disk.
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
            // [MS-FSCC] 2.4.8: this field contains a reparse point's tag. The size of extended
            // attributes is not reported, because it would have to be read from each file.
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

/// Returns how to open nodes for their attributes.
fn stat_open(link_itself: bool) -> NodeOpen {
    NodeOpen {
        link_itself,
        ..NodeOpen::default()
    }
}

/// Returns the attributes of `..`; above the root, those of the root.
pub(super) fn parent_stat(open: &Open, folder: &RelPath) -> Result<NodeStat, NtStatus> {
    match folder.parent() {
        None => stored(open.node.stat()),
        Some(parent) => stored(open.share.store.open(&parent, &stat_open(false))).map(|opened| opened.stat),
    }
}

/// Returns the attributes of a link's target, or of the link itself if its target does not exist or
/// is outside the share. If the folder was opened with FILE_OPEN_REPARSE_POINT, links are never
/// resolved.
fn resolve_link(open: &Open, folder: &RelPath, name: &Name, stat: NodeStat) -> NodeStat {
    if stat.kind != Kind::Symlink || open.options.contains(CreateOptions::OPEN_REPARSE_POINT) {
        return stat;
    }
    match open.share.store.open(&folder.join(name), &stat_open(false)) {
        Ok(opened) => opened.stat,
        Err(_) => stat,
    }
}

/// Looks up the entry for a pattern without wildcards.
fn look_up(open: &Open, folder: &RelPath, pattern: &Text) -> Result<Option<(Text, NodeStat)>, NtStatus> {
    let Some(name) = Name::new(&names::from_wire(pattern, NameMapping::Sfm)) else {
        return Ok(None);
    };
    let store = &open.share.store;
    let found = store.resolve(&folder.join(&name)).and_then(|path| {
        store
            .open(&path, &stat_open(true))
            .map(|opened| (path, opened.stat))
    });
    match found {
        Ok((path, stat)) => {
            let name = path.file_name().unwrap_or(name);
            let text = names::to_wire(name.as_bytes(), NameMapping::Sfm);
            Ok(Some((text, resolve_link(open, folder, &name, stat))))
        }
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::NameRefused) => {
            look_up_short(open, folder, &name)
        }
        Err(error) => Err(status::of(&error)),
    }
}

/// Looks up the entry that has this short name (smb2.name-mangling.mangled-mask).
fn look_up_short(open: &Open, folder: &RelPath, short: &Name) -> Result<Option<(Text, NodeStat)>, NtStatus> {
    if !open.share.name_view().short_names || !short_name::may_be_short(short.as_bytes()) {
        return Ok(None);
    }
    let Some(name) = short_name::find(&*open.node, short.as_bytes())? else {
        return Ok(None);
    };
    match open.share.store.open(&folder.join(&name), &stat_open(true)) {
        Ok(opened) => {
            let text = names::to_wire(name.as_bytes(), NameMapping::Sfm);
            Ok(Some((text, resolve_link(open, folder, &name, opened.stat))))
        }
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(status::of(&error)),
    }
}

#[cfg(test)]
#[path = "directory_tests.rs"]
mod tests;
