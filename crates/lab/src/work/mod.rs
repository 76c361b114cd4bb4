//! Works: sets of files that are copied; the same seed and scale give the same bytes.
//!
//! A [`Plan`] is pure: names, sizes and kinds of content. [`Plan::write`] creates the files and
//! [`Plan::compare`] checks a copy.

mod content;
mod disk;

pub use content::Content;

use crate::named::named;
use crate::random::SplitMix64;
use crate::report::WorkSummary;

/// Seed of all works, unless a scenario has another.
pub const SEED: u64 = 0x0DD5_EED5;
/// Bytes of [`Work::Folder4350mb`], as published.
const FOLDER_BYTES: u64 = 4_680_843_264;

named! {
    /// A set of files.
    pub enum Work: "work" {
        /// One spreadsheet-like file of 100 MB.
        File100mb = "file100mb",
        /// 1 GB in 300 office-like files of 50 KB to 5 MB, 14 folders.
        Dirset1gb = "dirset1gb",
        /// One file of 2.5 GB.
        File2500mb = "file2500mb",
        /// 2.5 GB in 300 files of music.
        Mp3set = "mp3set",
        /// 4,680,843,264 bytes in 38 files of 10 KB to 1 GB.
        Folder4350mb = "folder4350mb",
        /// 3,000 files of 1 to 64 KB.
        Small3000 = "small3000",
        /// One file of 1 GiB.
        File1gib = "file1gib",
        /// 16 files of 64 MiB, which are only read.
        Files64mib = "files64mib",
        /// A folder of 100,000 empty files, which is listed and not copied.
        List100k = "list100k",
        /// A folder of 10,000 empty files, which is listed and not copied.
        List10k = "list10k",
        /// 100,000 files of 1 to 16 KiB in 100 folders.
        Small100k = "small100k",
        /// One file of 4 GiB.
        File4gib = "file4gib",
        /// 3,000 files of 1 KiB to 48 MiB, as in home folders: most files small, most bytes in few.
        Mixed3000 = "mixed3000",
    }
}

/// One file of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path below the root, separated by `/`.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Kind of content.
    pub content: Content,
    /// Seed of the content.
    pub seed: u64,
}

/// The files of a work.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The work.
    pub work: Work,
    /// Seed of names, sizes and contents.
    pub seed: u64,
    /// Share of the full size.
    pub scale: f64,
    /// The files.
    pub entries: Vec<Entry>,
}

impl Work {
    /// One line for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::File100mb => "one spreadsheet-like file of 100 MB",
            Self::Dirset1gb => "1 GB in 300 office-like files of 50 KB to 5 MB, 14 folders",
            Self::File2500mb => "one file of 2.5 GB",
            Self::Mp3set => "2.5 GB in 300 files of music",
            Self::Folder4350mb => "4.35 GiB in 38 files of 10 KB to 1 GB",
            Self::Small3000 => "3,000 files of 1 to 64 KB",
            Self::File1gib => "one file of 1 GiB",
            Self::Files64mib => "1 GiB in 16 files of 64 MiB",
            Self::List100k => "one folder of 100,000 entries",
            Self::List10k => "one folder of 10,000 entries",
            Self::Small100k => "100,000 files of 1 to 16 KiB",
            Self::File4gib => "one file of 4 GiB",
            Self::Mixed3000 => "3,000 files of 1 KiB to 48 MiB",
        }
    }

    /// Whether the work is listed, not copied.
    pub fn is_listing(self) -> bool {
        matches!(self, Self::List100k | Self::List10k)
    }

    /// Whether the work is not written to the server.
    pub fn is_only_read(self) -> bool {
        self.is_listing() || self == Self::Files64mib
    }

    /// Returns the plan. The scale multiplies the bytes of single and equal files and of the folder, and the
    /// number of files of the other sets, which keep their sizes.
    pub fn plan(self, seed: u64, scale: f64) -> Plan {
        let mut draft = Draft {
            random: SplitMix64::new(seed),
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
            Self::File1gib => draft.add("bulk.bin".to_owned(), scaled(1 << 30, scale), Content::Archive),
            Self::File4gib => draft.add("big.bin".to_owned(), scaled(4 << 30, scale), Content::Archive),
            Self::Files64mib => draft.equal(16, scaled(64 << 20, scale)),
            Self::List100k => draft.entries(scaled(100_000, scale)),
            Self::List10k => draft.entries(scaled(10_000, scale)),
            Self::Small100k => draft.tiny(scaled(100_000, scale)),
            Self::Mixed3000 => draft.mixed(scaled(3000, scale)),
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

    /// Number of files.
    pub fn files(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Returns all folders except the root.
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

    /// Returns the size after LZ4 (blocks of 64 KiB) divided by the size: measured for each kind of
    /// content, weighted by bytes.
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

    /// Returns a line for people, with the effect of the scale.
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

    /// Returns the summary for a report.
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
    random: SplitMix64,
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
        // 300 files of 50 KB to 5 MB make 1 GB if their mean is 3.3 MB. The root of an even spread has
        // that mean.
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

    /// Four big files hold most of the bytes; the logarithms of the other sizes are evenly spread.
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

    fn equal(&mut self, files: u64, bytes: u64) {
        for index in 0..files {
            self.add(format!("part {index:02}.bin"), bytes, Content::Archive);
        }
    }

    fn entries(&mut self, files: u64) {
        for index in 0..files {
            self.add(format!("entry number {index:06}.txt"), 0, Content::Text);
        }
    }

    fn tiny(&mut self, files: u64) {
        let folders = files.div_ceil(1000).max(10);
        for index in 0..files {
            let size = 1024 + self.random.up_to(15 * 1024);
            self.add(
                format!("d{:03}/f{index:06}", index % folders),
                size,
                Content::Archive,
            );
        }
    }

    fn mixed(&mut self, files: u64) {
        for index in 0..files {
            let (low, high) = match index % 100 {
                0 => (8 << 20, 48 << 20),
                1..10 => (256 << 10, 4 << 20),
                _ => (1_u64 << 10, 256_u64 << 10),
            };
            let size = self.random.log_uniform(low, high);
            let path = format!("part {}/sub{}/file {index:05}.dat", index % 12, index % 7);
            self.add(path, size, Content::Archive);
        }
    }

    /// Draws sizes within bounds whose sum is exactly `bytes`, where that is possible.
    fn sizes(&mut self, files: u64, bytes: u64, low: u64, high: u64, shape: impl Fn(f64) -> f64) -> Vec<u64> {
        let (low_f, high_f) = (low as f64, high as f64);
        let drawn: Vec<f64> = (0..files)
            .map(|_| low_f + (high_f - low_f) * shape(self.random.fraction()))
            .collect();
        let total: f64 = drawn.iter().sum();
        // Moves all sizes towards one bound until the sum fits, so that no size leaves the bounds.
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
        // Rounding lost less than a byte per file.
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
            assert_eq!(work.name().parse(), Ok(work));
            assert_eq!(work.plan(7, 0.01), work.plan(7, 0.01));
            assert_ne!(work.plan(7, 0.01).entries, work.plan(8, 0.01).entries);
        }
        assert!("File100MB".parse::<Work>().is_err());
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
            assert!(
                (tiny.bytes() > 0 || work.is_listing()) && tiny.files() > 0,
                "{work:?}"
            );
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
