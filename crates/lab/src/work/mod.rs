//! Work sets: what is moved, the same bytes for the same seed and scale.
//!
//! A [`Plan`] is pure: names, sizes and kinds of content. [`Plan::write`] makes it, [`Plan::compare`] says whether a copy
//! is the same.

mod content;
mod disk;

use serde::Serialize;

pub use content::Content;

use crate::link::random::Random;
use crate::report::WorkSummary;

/// Seed of all work sets, unless a scenario has another.
pub const SEED: u64 = 0x0DD5_EED5;
/// Bytes of [`Work::Folder4350mb`], as published.
const FOLDER_BYTES: u64 = 4_680_843_264;

/// A work set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Work {
    /// One spreadsheet-like file of 100 MB.
    File100mb,
    /// 1 GB in 300 office-like files of 50 KB to 5 MB, 14 folders.
    Dirset1gb,
    /// One file of 2.5 GB.
    File2500mb,
    /// 2.5 GB in 300 files of music.
    Mp3set,
    /// 4,680,843,264 bytes in 38 files of 10 KB to 1 GB.
    Folder4350mb,
    /// 3,000 files of 1 to 64 KB.
    Small3000,
}

/// One file to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Below the root, folders separated by `/`.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// What is in it.
    pub content: Content,
    /// What its content is made from.
    pub seed: u64,
}

/// What a work set will be.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which.
    pub work: Work,
    /// What it is made from.
    pub seed: u64,
    /// Share of the full size.
    pub scale: f64,
    /// All files.
    pub entries: Vec<Entry>,
}

impl Work {
    /// All.
    pub const ALL: [Self; 6] = [
        Self::File100mb,
        Self::Dirset1gb,
        Self::File2500mb,
        Self::Mp3set,
        Self::Folder4350mb,
        Self::Small3000,
    ];

    /// As scenarios and cells name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::File100mb => "file100mb",
            Self::Dirset1gb => "dirset1gb",
            Self::File2500mb => "file2500mb",
            Self::Mp3set => "mp3set",
            Self::Folder4350mb => "folder4350mb",
            Self::Small3000 => "small3000",
        }
    }

    /// One line for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::File100mb => "one spreadsheet-like file of 100 MB",
            Self::Dirset1gb => "1 GB in 300 office-like files of 50 KB to 5 MB, 14 folders",
            Self::File2500mb => "one file of 2.5 GB",
            Self::Mp3set => "2.5 GB in 300 files of music",
            Self::Folder4350mb => "4.35 GiB in 38 files of 10 KB to 1 GB",
            Self::Small3000 => "3,000 files of 1 to 64 KB",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }

    /// What it will be. The scale multiplies the bytes of single files and of the folder, and the number of files of the
    /// other sets, whose sizes stay.
    pub fn plan(self, seed: u64, scale: f64) -> Plan {
        let mut draft = Draft {
            random: Random::new(seed),
            entries: Vec::new(),
        };
        match self {
            Self::File100mb => draft.add(
                "sheet.xls".to_owned(),
                scaled(100_000_000, scale),
                Content::Spreadsheet,
            ),
            Self::File2500mb => draft.add(
                "image.iso".to_owned(),
                scaled(2_500_000_000, scale),
                Content::Archive,
            ),
            Self::Dirset1gb => draft.office(scaled(300, scale)),
            Self::Mp3set => draft.music(scaled(300, scale)),
            Self::Folder4350mb => draft.folder(scaled(FOLDER_BYTES, scale)),
            Self::Small3000 => draft.small(scaled(3000, scale)),
        }
        Plan {
            work: self,
            seed,
            scale,
            entries: draft.entries,
        }
    }
}

impl Plan {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| entry.bytes).sum()
    }

    /// How many files.
    pub fn files(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Folders, the root left out.
    pub fn folders(&self) -> Vec<&str> {
        let mut folders: Vec<&str> = self
            .entries
            .iter()
            .filter_map(|entry| entry.path.rsplit_once('/'))
            .map(|(folder, _)| folder)
            .collect();
        folders.sort_unstable();
        folders.dedup();
        folders
    }

    /// Size by LZ4 (blocks of 64 KiB) divided by size: measured for each kind of content, weighed by bytes.
    pub fn lz4_ratio(&self) -> f64 {
        let share = |content: Content| {
            let those = self.entries.iter().filter(|entry| entry.content == content);
            those.map(|entry| entry.bytes).sum::<u64>() as f64
        };
        let sum: f64 = Content::ALL
            .into_iter()
            .filter(|content| share(*content) > 0.0)
            .map(|content| share(content) * content.lz4_ratio())
            .sum();
        sum / (self.bytes() as f64).max(1.0)
    }

    /// One line for people; what a scale made of it is said.
    pub fn title(&self) -> String {
        let whole = self.work.title();
        if (self.scale - 1.0).abs() < f64::EPSILON {
            return whole.to_owned();
        }
        let files = match self.files() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        let megabytes = self.bytes() as f64 / 1e6;
        format!("{whole}, times {}: {megabytes:.1} MB in {files}", self.scale)
    }

    /// For the document.
    pub fn summary(&self) -> WorkSummary {
        WorkSummary {
            name: self.work.name().to_owned(),
            title: self.title(),
            files: self.files(),
            folders: self.folders().len() as u64,
            bytes: self.bytes(),
            seed: self.seed,
            scale: self.scale,
            lz4_ratio: (self.lz4_ratio() * 1000.0).round() / 1000.0,
        }
    }
}

fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale).round() as u64).max(1)
}

struct Draft {
    random: Random,
    entries: Vec<Entry>,
}

impl Draft {
    fn add(&mut self, path: String, bytes: u64, content: Content) {
        let seed = self.random.next();
        self.entries.push(Entry {
            path,
            bytes,
            content,
            seed,
        });
    }

    fn office(&mut self, files: u64) {
        const KINDS: [(&str, Content); 5] = [
            ("docx", Content::Office),
            ("xls", Content::Spreadsheet),
            ("pptx", Content::Office),
            ("pdf", Content::Office),
            ("jpg", Content::Archive),
        ];
        // For 300 files of 50 KB to 5 MB to make 1 GB the mean has to be 3.3 MB, so the greater part is big: the root of
        // an even spread has just that mean.
        let bytes = files * 10_000_000 / 3;
        let sizes = self.sizes(files, bytes, 50_000, 5_000_000, f64::sqrt);
        for (index, size) in sizes.into_iter().enumerate() {
            let (ending, content) = KINDS[index % KINDS.len()];
            let path = format!("folder {:02}/report {index:03}.{ending}", index % 14);
            self.add(path, size, content);
        }
    }

    fn music(&mut self, files: u64) {
        // Pieces of 2 to 9 minutes at 192 kbit/s and more; 25 albums of 12.
        let sizes = self.sizes(files, files * 25_000_000 / 3, 2_900_000, 13_700_000, |part| part);
        for (index, size) in sizes.into_iter().enumerate() {
            let path = format!(
                "album {:02}/{:02} piece {index:03}.mp3",
                index / 12,
                index % 12 + 1
            );
            self.add(path, size, Content::Music);
        }
    }

    /// Four big files make most of the bytes; the others are spread evenly by their logarithm.
    fn folder(&mut self, bytes: u64) {
        const FILES: u64 = 38;
        let part = bytes as f64 / FOLDER_BYTES as f64;
        let scaled = |size: u64| ((size as f64 * part) as u64).max(1);
        let mut left = bytes;
        let mut sizes: Vec<u64> = [10_000, 1_000_000_000, 990_000_000, 980_000_000, 970_000_000]
            .map(scaled)
            .to_vec();
        for index in 0..FILES - 6 {
            let at = (index as f64 + self.random.fraction()) / (FILES - 6) as f64;
            // e^9.21 is 10 KB, e^18.42 100 MB.
            sizes.push(scaled((9.22 + at * 9.2).exp() as u64));
        }
        for size in &mut sizes {
            *size = (*size).min(left);
            left -= *size;
        }
        sizes.push(left);
        for (index, size) in sizes.into_iter().enumerate() {
            let content = match index % 4 {
                0 => Content::Office,
                1 => Content::Archive,
                2 => Content::Music,
                _ => Content::Text,
            };
            self.add(format!("file {index:02}.dat"), size, content);
        }
    }

    fn small(&mut self, files: u64) {
        for index in 0..files {
            let size = 1000 + self.random.up_to(63_000);
            let content = if index % 5 < 2 {
                Content::Text
            } else {
                Content::Archive
            };
            self.add(format!("d{:02}/f{index:04}", index % 30), size, content);
        }
    }

    /// Sizes within bounds that make exactly `bytes` together, if that can be.
    fn sizes(&mut self, files: u64, bytes: u64, low: u64, high: u64, shape: impl Fn(f64) -> f64) -> Vec<u64> {
        let (low_f, high_f) = (low as f64, high as f64);
        let drawn: Vec<f64> = (0..files)
            .map(|_| low_f + (high_f - low_f) * shape(self.random.fraction()))
            .collect();
        let total: f64 = drawn.iter().sum();
        // Drawn towards one bound as much as the sum asks: no size leaves the bounds.
        let bound = if total > bytes as f64 { low_f } else { high_f };
        let room = total - bound * files as f64;
        let factor = if room.abs() < 1.0 {
            1.0
        } else {
            (bytes as f64 - bound * files as f64) / room
        };
        let mut sizes: Vec<u64> = drawn
            .iter()
            .map(|size| (bound + (size - bound) * factor) as u64)
            .map(|size| size.clamp(low, high))
            .collect();
        // Rounding left less than a byte a file.
        let mut missing = bytes.saturating_sub(sizes.iter().sum());
        for size in &mut sizes {
            let more = missing.min(high.saturating_sub(*size));
            *size += more;
            missing -= more;
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_as_big_as_they_say() {
        for (work, files, bytes, folders, least, most) in [
            (Work::File100mb, 1, 100_000_000, 0, 100_000_000, 100_000_000),
            (Work::Dirset1gb, 300, 1_000_000_000, 14, 50_000, 5_000_000),
            (
                Work::File2500mb,
                1,
                2_500_000_000,
                0,
                2_500_000_000,
                2_500_000_000,
            ),
            (Work::Mp3set, 300, 2_500_000_000, 25, 2_900_000, 13_700_000),
            (Work::Folder4350mb, 38, FOLDER_BYTES, 0, 10_000, 1_000_000_000),
        ] {
            let plan = work.plan(SEED, 1.0);
            assert_eq!((plan.files(), plan.bytes()), (files, bytes), "{work:?}");
            assert_eq!(plan.folders().len(), folders, "{work:?}");
            for entry in &plan.entries {
                assert!((least..=most).contains(&entry.bytes), "{entry:?}");
            }
        }
        let small = Work::Small3000.plan(SEED, 1.0);
        assert_eq!(small.files(), 3000);
        assert!(
            small
                .entries
                .iter()
                .all(|entry| (1000..=64_000).contains(&entry.bytes))
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_set_and_another_another() {
        for work in Work::ALL {
            assert_eq!(Work::named(work.name()), Some(work));
            assert_eq!(work.plan(7, 0.5), work.plan(7, 0.5));
            assert_ne!(work.plan(7, 0.5).entries, work.plan(8, 0.5).entries);
        }
        assert_eq!(Work::named("File100MB"), None);
    }

    #[test]
    fn the_scale_keeps_what_files_are_like() {
        let plan = Work::Dirset1gb.plan(SEED, 0.1);
        assert_eq!((plan.files(), plan.bytes()), (30, 100_000_000));
        assert!(
            plan.title().ends_with("times 0.1: 100.0 MB in 30 files"),
            "{}",
            plan.title()
        );
        let plan = Work::Folder4350mb.plan(SEED, 0.001);
        assert_eq!((plan.files(), plan.bytes()), (38, 4_680_843));
        for work in Work::ALL {
            let tiny = work.plan(SEED, 1e-9);
            assert!(tiny.bytes() > 0 && tiny.files() > 0, "{work:?}");
        }
    }

    #[test]
    fn compressibility_is_measured() {
        let ratio = |work: Work| work.plan(SEED, 0.01).lz4_ratio();
        assert!(
            (0.3..0.8).contains(&ratio(Work::File100mb)),
            "{}",
            ratio(Work::File100mb)
        );
        assert!(
            (0.6..0.98).contains(&ratio(Work::Dirset1gb)),
            "{}",
            ratio(Work::Dirset1gb)
        );
        assert!(
            (0.99..1.02).contains(&ratio(Work::Mp3set)),
            "{}",
            ratio(Work::Mp3set)
        );
    }
}
