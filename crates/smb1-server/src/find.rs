//! TRANS2_FIND_FIRST2, TRANS2_FIND_NEXT2 and FIND_CLOSE2 ([MS-CIFS] 3.3.5.58.2, 3.3.5.58.3).

use std::collections::VecDeque;

use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::info::{DirectoryClass, DirectoryRecord, DirectoryRecords};
use ropeway_smb_wire::{FileAttributes, NtStatus, Text, upcase};
use ropeway_smb1::server::{Answer, Transaction};
use ropeway_smb1::wire::close::{decode_id, encode_empty};
use ropeway_smb1::wire::find::{Entry, FindFirst, FindFlags, FindNext, FindResponse, Layout};
use ropeway_smb1::wire::trans2::{Level, to_bytes};

use crate::calls::Open;
use crate::conversation::{Call, Conversation, Outcome, done};
use crate::line::Fault;
use crate::tables::Search;

/// Most bytes of entries in one response: their offsets have 16 bits.
const DATA_MAX: usize = 0xFFFF;

/// Attributes that hide a file from searches which do not name them ([MS-CIFS] 2.2.1.2.4).
const SPECIAL: FileAttributes = FileAttributes::HIDDEN
    .union(FileAttributes::SYSTEM)
    .union(FileAttributes::DIRECTORY);

/// Returns whether a file is shown to a search for ordinary files and those with `attributes`.
pub(crate) fn is_shown(of_file: FileAttributes, attributes: u16) -> bool {
    let named = FileAttributes::from_bits_retain(u32::from(attributes));
    named.contains(of_file & SPECIAL)
}

/// Splits a path into its folder and its last name.
pub(crate) fn split(path: &Text) -> (Text, Text) {
    let units = path.units();
    match units.iter().rposition(|unit| *unit == u16::from(b'\\')) {
        Some(at) => (
            Text::from_units(units[..at].to_vec()),
            Text::from_units(units[at + 1..].to_vec()),
        ),
        None => (Text::default(), path.clone()),
    }
}

/// Returns a pattern of DOS as the server has it: a name without a dot matches `*.*`, too.
fn pattern_of(name: Text) -> Text {
    let all = ["", "*.*", "????????.???"];
    match all.iter().any(|all| name == Text::from(*all)) {
        true => Text::from("*"),
        false => name,
    }
}

/// The entries of one response.
struct Page {
    data: Vec<u8>,
    count: u16,
    last_offset: usize,
    is_end: bool,
}

impl Conversation {
    pub(crate) fn find_first(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        let asked = FindFirst::decode(&request.parameters, request.is_unicode())?;
        let layout = self.layout(request, asked.level, asked.flags)?;
        let header = request.header();
        let place = self.disk(&header)?.place;
        let (folder, name) = split(&self.path(&asked.pattern));
        let access = AccessMask::LIST_DIRECTORY | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        let mut open = Open::existing(folder, access);
        open.options = CreateOptions::DIRECTORY_FILE;
        let opened = match self.line.create(place, open) {
            Err(Fault::Status(NtStatus::OBJECT_NAME_NOT_FOUND)) => {
                return Err(NtStatus::OBJECT_PATH_NOT_FOUND.into());
            }
            opened => opened?,
        };
        let mut search = Search {
            uid: header.uid,
            tid: header.tid,
            place,
            folder: opened.id,
            pattern: pattern_of(name),
            attributes: asked.search_attributes,
            listed: VecDeque::new(),
            is_at_end: false,
            last: Text::default(),
        };
        let page = match self.page(&mut search, layout, asked.count, request) {
            Ok(page) if page.count > 0 => page,
            Ok(_) => return self.fail_search(&search, NtStatus::NO_SUCH_FILE.into()),
            Err(fault) => return self.fail_search(&search, fault),
        };
        let sid = match is_over(asked.flags, page.is_end) {
            true => {
                self.line.close(place, search.folder)?;
                0
            }
            false => {
                let (folder, added) = (search.folder, self.tables.searches.add(search));
                match added {
                    Some(sid) => sid,
                    None => {
                        self.line.close(place, folder)?;
                        return Err(NtStatus::INSUFFICIENT_RESOURCES.into());
                    }
                }
            }
        };
        Ok(answer(Some(sid), page))
    }

    fn fail_search<T>(&mut self, search: &Search, fault: Fault) -> Result<T, Fault> {
        self.line.close(search.place, search.folder)?;
        Err(fault)
    }

    pub(crate) fn find_next(&mut self, request: &Transaction) -> Result<Answer, Fault> {
        let asked = FindNext::decode(&request.parameters, request.is_unicode())?;
        let layout = self.layout(request, asked.level, asked.flags)?;
        let place = self.disk(&request.header())?.place;
        let search = self.tables.searches.remove(asked.sid);
        let mut search = search
            .filter(|search| search.place == place)
            .ok_or(NtStatus::INVALID_HANDLE)?;
        let name = self.state.text(&asked.name);
        let goes_on = asked.flags.contains(FindFlags::CONTINUE_FROM_LAST)
            || name.is_empty()
            || upcase::equal(&name, &search.last);
        let page = match goes_on {
            true => self.page(&mut search, layout, asked.count, request),
            false => self
                .seek(&mut search, &name)
                .and_then(|()| self.page(&mut search, layout, asked.count, request)),
        };
        let page = match page {
            Ok(page) if page.count > 0 || page.is_end => page,
            Ok(_) => return self.fail_search(&search, NtStatus::NO_MORE_FILES.into()),
            Err(fault) => return self.fail_search(&search, fault),
        };
        match is_over(asked.flags, page.is_end) {
            true => self.line.close(place, search.folder)?,
            false => _ = self.tables.searches.put(asked.sid, search),
        }
        Ok(answer(None, page))
    }

    pub(crate) fn find_close(&mut self, call: &mut Call<'_>) -> Outcome {
        let sid = decode_id(call.block)?;
        let place = self.disk(&call.header)?.place;
        let is_own = self
            .tables
            .searches
            .get(sid)
            .is_some_and(|search| search.place == place);
        let search = if is_own {
            self.tables.searches.remove(sid)
        } else {
            None
        };
        let search = search.ok_or(NtStatus::INVALID_HANDLE)?;
        self.line.close(place, search.folder)?;
        done(encode_empty)
    }

    fn layout(&self, request: &Transaction, level: Level, flags: FindFlags) -> Result<Layout, Fault> {
        let layout = Layout {
            level,
            is_unicode: request.is_unicode(),
            has_keys: flags.contains(FindFlags::RETURN_RESUME_KEYS),
            zone: self.state.config().zone,
        };
        match layout.is_known() {
            true => Ok(layout),
            false => Err(NtStatus::INVALID_LEVEL.into()),
        }
    }

    /// Lists more entries. Returns `false` if there are none.
    fn more(&mut self, search: &mut Search, restart: bool) -> Result<bool, Fault> {
        let listed = self
            .line
            .list(search.place, search.folder, &search.pattern, restart)?;
        let records = DirectoryRecords::new(&listed, DirectoryClass::IdBothDirectory).flatten();
        let attributes = search.attributes;
        search
            .listed
            .extend(records.filter(|record| is_shown(record.attributes, attributes)));
        search.is_at_end = listed.is_empty();
        Ok(!listed.is_empty())
    }

    /// Begins again, after the entry with this name.
    fn seek(&mut self, search: &mut Search, name: &Text) -> Result<(), Fault> {
        search.listed.clear();
        let mut restart = true;
        while self.more(search, restart)? {
            restart = false;
            while let Some(record) = search.listed.pop_front() {
                if upcase::equal(&record.name, name) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Returns as many entries as fit.
    fn page(
        &mut self,
        search: &mut Search,
        layout: Layout,
        count_max: u16,
        request: &Transaction,
    ) -> Result<Page, Fault> {
        let max = usize::try_from(request.limits.data)
            .unwrap_or(DATA_MAX)
            .min(DATA_MAX);
        let (mut data, mut last, mut count) = (Vec::new(), None, 0);
        loop {
            if search.listed.is_empty() && (search.is_at_end || !self.more(search, false)?) {
                break;
            }
            let Some(record) = search.listed.pop_front() else {
                continue;
            };
            let entry = self.entry(&record, layout.is_unicode);
            let pushed = match count < count_max.max(1) {
                true => layout.push(&entry, &mut data, last, max),
                false => None,
            };
            let Some(at) = pushed else {
                search.listed.push_front(record);
                break;
            };
            (last, count) = (Some(at), count + 1);
            search.last = record.name;
        }
        if count == 0 && !search.listed.is_empty() {
            return Err(NtStatus::BUFFER_TOO_SMALL.into());
        }
        Ok(Page {
            data,
            count,
            last_offset: last.unwrap_or(0),
            is_end: search.listed.is_empty() && search.is_at_end,
        })
    }

    fn entry(&self, record: &DirectoryRecord, is_unicode: bool) -> Entry {
        let short = record
            .short_name
            .units()
            .iter()
            .flat_map(|unit| unit.to_le_bytes());
        Entry {
            index: 0,
            creation_time: record.creation_time,
            last_access_time: record.last_access_time,
            last_write_time: record.last_write_time,
            change_time: record.change_time,
            end_of_file: record.end_of_file,
            allocation_size: record.allocation_size,
            attributes: record.attributes.bits(),
            ea_size: record.ea_size,
            short_name: short.collect(),
            file_id: record.file_id as u64,
            name: self.state.string(&record.name, is_unicode),
        }
    }
}

fn is_over(flags: FindFlags, is_end: bool) -> bool {
    flags.contains(FindFlags::CLOSE_AFTER_REQUEST) || is_end && flags.contains(FindFlags::CLOSE_AT_EOS)
}

/// Returns the answer; that to FIND_FIRST2 begins with the number of the search.
fn answer(sid: Option<u16>, page: Page) -> Answer {
    let response = FindResponse {
        count: page.count,
        end_of_search: u16::from(page.is_end),
        ea_error_offset: 0,
        last_name_offset: page.last_offset as u16,
    };
    let parameters = to_bytes(|w| {
        if let Some(sid) = sid {
            w.u16(sid);
        }
        response.write(w);
    });
    Answer {
        parameters,
        data: page.data,
        ..Answer::default()
    }
}
