//! Saves a backlog under another name, because others have changed its file.
//!
//! The far file stays as it is. Our side goes to a new file beside it. Where the journal does not
//! have all of the content, the rest of the new file is zeros, and a second file lists what it has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ropeway_vfs::store::{Access, NewNode, Node, NodeChange, NodeOpen};
use ropeway_vfs::{Error, ErrorKind, FileId, Name, Op, RelPath, Result, Timestamp};

use crate::backlog::Backlog;
use crate::files::File;
use crate::log::Parts;
use crate::record::Record;
use crate::shared::{Shared, now};

/// Names that are tried.
const ATTEMPTS: u32 = 100;

/// What is to be saved.
struct Ours {
    path: RelPath,
    backlog: Backlog,
    parts: Parts,
    /// The file that a process before this one began to write.
    begun: Option<(RelPath, FileId)>,
    since: Timestamp,
}

impl Shared {
    /// Saves the backlog of a file under another name, and ends it.
    pub(crate) fn save_conflict(self: &Arc<Self>, file: &Arc<File>) -> Result<()> {
        let _drainer = file.drain.lock();
        let ours = {
            let state = file.state.lock();
            let Some(pending) = &state.pending else {
                return Ok(());
            };
            Ours {
                path: state.path.clone(),
                backlog: pending.backlog.clone(),
                parts: pending.log.parts(),
                begun: pending.conflict.clone().flatten(),
                since: pending.since,
            }
        };
        let gaps = ours.backlog.only_far();
        let (path, node) = match self.begun(&ours) {
            Some(begun) => begun,
            None => self.new_file(file, &ours, !gaps.is_empty())?,
        };
        write(&*node, &ours)?;
        if !gaps.is_empty() {
            self.list_ranges(&path, &ours)?;
        }
        self.note_saved(file)?;
        self.figures.conflict(&path);
        let (far, was) = (&self.options.far, &ours.path);
        tracing::warn!(far, path = %was, saved = %path, complete = gaps.is_empty(),
            "others have changed the file at the far server: theirs stays, what was written here is saved");
        // The last user of a part removes it: that must come before the end of the log is durable.
        drop(ours);
        self.drop_backlog(file);
        Ok(())
    }

    /// Notes that our side is saved, before any part of the log goes: else a process that has only
    /// the last part left would write the saved file again, without the content of the others.
    fn note_saved(&self, file: &File) -> Result<()> {
        let mut state = file.state.lock();
        let path = state.path.clone();
        let Some(pending) = &mut state.pending else {
            return Ok(());
        };
        let noted = pending.note_synced(&path, &Record::Removed);
        noted.map_err(|error| Error::from_io(Op::Sync, &path, error))
    }

    /// Opens the file that was begun before, if it is still there.
    fn begun(&self, ours: &Ours) -> Option<(RelPath, Arc<dyn Node>)> {
        let (path, id) = ours.begun.clone()?;
        let how = NodeOpen {
            access: Access::Write,
            link_itself: true,
            ..NodeOpen::default()
        };
        let opened = self.inner.open(&path, &how).ok()?;
        (opened.stat.id == id).then_some((path, opened.node))
    }

    /// Makes a file of a name that nobody has.
    fn new_file(&self, file: &Arc<File>, ours: &Ours, is_partial: bool) -> Result<(RelPath, Arc<dyn Node>)> {
        let how = NodeOpen {
            access: Access::Write,
            create: Some(NewNode {
                directory: false,
                dos_attributes: None,
            }),
            exclusive: true,
            ..NodeOpen::default()
        };
        let mut folder = ours.path.parent().unwrap_or_default();
        let mut attempt = 0;
        loop {
            let name = name_for(ours, attempt, is_partial, self.inner.features().name_max);
            let path = folder.join(&name);
            match self.inner.open(&path, &how) {
                Ok(opened) => {
                    let mut state = file.state.lock();
                    let at = state.path.clone();
                    if let Some(pending) = &mut state.pending {
                        let saved = Some((path.clone(), opened.stat.id));
                        pending.conflict = Some(saved.clone());
                        // Without it, a crash leaves this file as it is then, and another is made.
                        let _ = pending.note_synced(&at, &Record::Conflict(saved));
                    }
                    drop(state);
                    return Ok((path, opened.node));
                }
                Err(error) if error.kind == ErrorKind::AlreadyExists && attempt < ATTEMPTS => attempt += 1,
                Err(error) if error.kind.is_absence() && !folder.is_root() => {
                    // The folder is gone, too: the next one above it.
                    folder = folder.parent().unwrap_or_default();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Lists the ranges that a partial file has.
    fn list_ranges(&self, path: &RelPath, ours: &Ours) -> Result<()> {
        let failed = |kind| Error::new(Op::Create, path, kind);
        let base = path.file_name().ok_or_else(|| failed(ErrorKind::NameRefused))?;
        let how = NodeOpen {
            access: Access::Write,
            create: Some(NewNode {
                directory: false,
                dos_attributes: None,
            }),
            exclusive: true,
            ..NodeOpen::default()
        };
        for attempt in 0..ATTEMPTS {
            let mut name = base.as_bytes().to_vec();
            name.extend_from_slice(match attempt {
                0 => b".ranges".as_slice(),
                _ => b".ranges again".as_slice(),
            });
            if attempt > 1 {
                name.extend_from_slice(attempt.to_string().as_bytes());
            }
            name.extend_from_slice(b".txt");
            let name = Name::new(&name).ok_or_else(|| failed(ErrorKind::NameRefused))?;
            let path = path.parent().unwrap_or_default().join(&name);
            match self.inner.open(&path, &how) {
                // Another's, or that of a process before this one.
                Err(error) if error.kind == ErrorKind::AlreadyExists => {}
                opened => {
                    let node = opened?.node;
                    node.write_at(ranges_text(&ours.backlog).as_bytes(), 0)?;
                    return node.sync();
                }
            }
        }
        Err(failed(ErrorKind::AlreadyExists))
    }

    /// Counts a file whose journal is damaged: it is saved under another name as far as it can be
    /// read.
    pub(crate) fn is_damaged(&self, path: &RelPath) {
        self.figures.damaged.fetch_add(1, Ordering::Relaxed);
        let far = &self.options.far;
        tracing::error!(far, %path, "the write-back journal of this file is damaged: what can be read is saved under another name");
    }
}

fn write(node: &dyn Node, ours: &Ours) -> Result<()> {
    node.set_len(0)?;
    for (offset, piece) in ours.backlog.pieces_in(0, u64::MAX) {
        let mut bytes = vec![0; usize::try_from(piece.length).unwrap_or(0)];
        let read = ours.parts.read(&piece, 0, &mut bytes);
        read.map_err(|error| Error::from_io(Op::Read, &ours.path, error))?;
        node.write_at(&bytes, offset)?;
    }
    node.set_len(ours.backlog.size)?;
    let times = NodeChange {
        modified: ours.backlog.change.modified,
        ..NodeChange::default()
    };
    node.change(&times)?;
    node.sync()
}

/// Returns a name beside the file's: `report (conflict 2026-11-24 0715).docx`.
fn name_for(ours: &Ours, attempt: u32, is_partial: bool, name_max: usize) -> Name {
    let name = ours.path.file_name();
    let name = name.as_ref().map_or(&b"file"[..], Name::as_bytes);
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0);
    // A long ending is none.
    let dot = dot.filter(|dot| name.len() - dot <= 16).unwrap_or(name.len());
    let (stem, ending) = name.split_at(dot);
    let what = if is_partial { "conflict, parts" } else { "conflict" };
    let time = if ours.since.0 > 0 { ours.since } else { now() };
    let mut middle = format!(" ({what} {}", date(time));
    if attempt > 0 {
        middle.push_str(&format!(" {attempt}"));
    }
    middle.push(')');
    // Room for `.ranges again99.txt`, and for servers that count two bytes for some characters.
    let room = name_max.min(200).saturating_sub(middle.len() + ending.len() + 20);
    let mut stem = &stem[..stem.len().min(room)];
    while std::str::from_utf8(stem).is_err() && !stem.is_empty() {
        stem = &stem[..stem.len() - 1];
    }
    let bytes = [stem, middle.as_bytes(), ending].concat();
    let plain = || Name::new(middle.trim().as_bytes()).expect("no slash in it");
    Name::new(&bytes).unwrap_or_else(plain)
}

/// Returns date and time in UTC, without characters that Windows refuses in names.
fn date(time: Timestamp) -> String {
    let (seconds, _) = time.to_unix();
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days to a date of the Gregorian calendar, by eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (of_day / 3600, of_day % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}{minute:02}")
}

/// Returns the list of ranges, for people and for `dd`.
fn ranges_text(backlog: &Backlog) -> String {
    let mut text = String::from(
        "The file beside this list has only parts of what was written: those below. The rest was in the\n\
         file at the far server, which others have changed since. It is zeros here.\n\n\
         first byte, number of bytes:\n",
    );
    let mut at = 0;
    let gaps = backlog.only_far().into_iter().chain([(backlog.size, 0)]);
    for (gap, length) in gaps {
        if gap > at {
            text.push_str(&format!("{at} {}\n", gap - at));
        }
        at = gap + length;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| date(Timestamp::from_unix(seconds, 0));
        assert_eq!(at(0), "1970-01-01 0000");
        assert_eq!(at(951_782_400 + 86_399), "2000-02-29 2359");
        assert_eq!(at(1_795_503_300), "2026-11-24 0655");
    }
}
