//! Trees to copy, the same for the same seed.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// Seed of all work sets.
const SEED: u64 = 0x0DD5_EED5;

/// A kind of tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Work {
    /// 100,000 files of 1 to 16 KiB in 100 folders
    Small,
    /// One file of 4 GiB
    Big,
    /// Some 3,000 files of 1 KiB to 48 MiB, 1.3 GiB in all
    Mixed,
}

/// What a generated tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    /// Regular files.
    pub(crate) files: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

impl Work {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Big => "big",
            Self::Mixed => "mixed",
        }
    }

    /// Makes the tree in a new folder. `scale` multiplies the number of files (`Big`: the bytes).
    ///
    /// # Errors
    /// If something cannot be written.
    pub(crate) fn generate(self, root: &Path, scale: f64) -> Result<Content> {
        let mut maker = Maker::new(root)?;
        match self {
            Self::Small => maker.small(scaled(100_000, scale))?,
            Self::Big => maker.file("big.bin", scaled(4 << 30, scale))?,
            Self::Mixed => maker.mixed(scaled(3_000, scale))?,
        }
        Ok(maker.content)
    }
}

/// What is sent over networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Cargo {
    /// One file of 100 MB
    One,
    /// 1 GB in 300 files of 50 KB to 5 MB, 14 folders
    Office,
    /// 3,000 files of 1 to 64 KB, 98 MB in all, 30 folders
    Small,
    /// One file of 1 GiB
    Bulk,
}

impl Cargo {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Office => "office",
            Self::Small => "small",
            Self::Bulk => "bulk",
        }
    }

    /// What it is, for headings.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::One => "one file of 100 MB",
            Self::Office => "1 GB in 300 files of 50 KB to 5 MB",
            Self::Small => "3,000 files of 1 to 64 KB",
            Self::Bulk => "one file of 1 GiB",
        }
    }

    /// About what it will hold.
    pub(crate) fn expected(self, scale: f64) -> Content {
        let (files, bytes) = match self {
            Self::One => (1, scaled(100_000_000, scale)),
            Self::Bulk => (1, scaled(1 << 30, scale)),
            Self::Office => (300, scaled(1_000_000_000, scale)),
            Self::Small => (scaled(3_000, scale), scaled(3_000, scale) * 32_500),
        };
        Content { files, bytes }
    }

    /// Makes the tree in a new folder. `scale` multiplies the bytes, of `Small` the number of files.
    ///
    /// # Errors
    /// If something cannot be written.
    pub(crate) fn generate(self, root: &Path, scale: f64) -> Result<Content> {
        let mut maker = Maker::new(root)?;
        match self {
            Self::One => maker.file("one.bin", scaled(100_000_000, scale))?,
            Self::Bulk => maker.file("bulk.bin", scaled(1 << 30, scale))?,
            Self::Office => maker.office(300, scaled(1_000_000_000, scale))?,
            Self::Small => {
                for index in 0..scaled(3_000, scale) {
                    let size = 1_000 + maker.rng.below(63_001);
                    maker.file(&format!("d{:02}/f{index:04}", index % 30), size)?;
                }
            }
        }
        Ok(maker.content)
    }
}

fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale) as u64).max(1)
}

struct Maker<'a> {
    root: &'a Path,
    rng: Rng,
    buffer: Vec<u8>,
    content: Content,
}

impl<'a> Maker<'a> {
    fn new(root: &'a Path) -> Result<Self> {
        fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self {
            root,
            rng: Rng::new(SEED),
            buffer: vec![0; 1 << 20],
            content: Content::default(),
        })
    }

    fn small(&mut self, files: u64) -> Result<()> {
        let folders = files.div_ceil(1000).max(10);
        for index in 0..files {
            let size = 1024 + self.rng.below(15 * 1024 + 1);
            self.file(&format!("d{:03}/f{index:06}", index % folders), size)?;
        }
        Ok(())
    }

    /// Sizes as in home folders: most files small, most bytes in few.
    fn mixed(&mut self, files: u64) -> Result<()> {
        for index in 0..files {
            let (low, high) = match index % 100 {
                0 => (8 << 20, 48 << 20),
                1..10 => (256 << 10, 4 << 20),
                _ => (1 << 10, 256 << 10),
            };
            let size = self.rng.log_uniform(low, high);
            let (outer, inner) = (index % 12, index % 7);
            self.file(&format!("part {outer}/sub{inner}/file {index:05}.dat"), size)?;
            if index % 100 == 50 {
                let link = self.root.join(format!("part {outer}/link{index:05}"));
                std::os::unix::fs::symlink(format!("sub{inner}/file {index:05}.dat"), link)?;
            }
        }
        Ok(())
    }

    /// Files of 50 KB to 5 MB (at full scale) that make exactly `bytes` together. For 300 of them to make 1 GB the mean
    /// has to be 3.3 MB, so the greater part is big: the root of an even spread has just that mean.
    fn office(&mut self, files: u64, bytes: u64) -> Result<()> {
        const KINDS: [&str; 5] = ["docx", "xlsx", "pptx", "pdf", "jpg"];
        let mean = bytes as f64 / files as f64;
        let (low, high) = (0.015 * mean, 1.5 * mean);
        let sizes: Vec<f64> = (0..files)
            .map(|_| low + (high - low) * self.rng.fraction().sqrt())
            .collect();
        let total: f64 = sizes.iter().sum();
        // Drawn towards one bound as much as the sum asks: no size leaves the bounds.
        let bound = if total > bytes as f64 { low } else { high };
        let factor = (bytes as f64 - bound * files as f64) / (total - bound * files as f64);
        let mut left = bytes;
        for (index, size) in (0..files).zip(sizes) {
            let size = match index + 1 == files {
                true => left,
                false => ((bound + (size - bound) * factor) as u64).min(left),
            };
            left -= size;
            let kind = KINDS[index as usize % KINDS.len()];
            self.file(
                &format!("folder {:02}/report {index:03}.{kind}", index % 14),
                size,
            )?;
        }
        Ok(())
    }

    fn file(&mut self, name: &str, size: u64) -> Result<()> {
        let path = self.root.join(name);
        let context = || format!("cannot write {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(context)?;
        }
        let mut file = File::create(&path).with_context(context)?;
        let mut left = size;
        while left > 0 {
            let length = left.min(self.buffer.len() as u64) as usize;
            self.rng.fill(&mut self.buffer[..length]);
            file.write_all(&self.buffer[..length]).with_context(context)?;
            left -= length as u64;
        }
        self.content.files += 1;
        self.content.bytes += size;
        Ok(())
    }
}

/// Counts the regular files below a folder and their bytes, links not followed.
///
/// # Errors
/// If a folder cannot be listed.
pub(crate) fn count(root: &Path) -> Result<Content> {
    let mut content = Content::default();
    visit(root, &mut |path| {
        let metadata = fs::symlink_metadata(path)?;
        if metadata.is_file() {
            content.files += 1;
            content.bytes += metadata.len();
        }
        Ok(())
    })?;
    Ok(content)
}

/// Reads every regular file once, so that the page cache holds it.
///
/// # Errors
/// If something cannot be read.
pub(crate) fn read_all(root: &Path) -> Result<()> {
    visit(root, &mut |path| {
        if fs::symlink_metadata(path)?.is_file() {
            std::io::copy(&mut File::open(path)?, &mut std::io::sink())?;
        }
        Ok(())
    })
}

/// Calls `each` for everything below a folder, the folder itself left out.
///
/// # Errors
/// If a folder cannot be listed, or the first error of `each`.
pub(crate) fn visit(root: &Path, each: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    let mut waiting = vec![root.to_path_buf()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                waiting.push(entry.path());
            }
            each(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn office_files_keep_their_bounds() {
        let folder = tempfile::tempdir().unwrap();
        let content = Cargo::Office.generate(folder.path(), 0.01).unwrap();
        assert_eq!(content.bytes, 10_000_000);
        let mut sizes = Vec::new();
        visit(folder.path(), &mut |path| {
            let metadata = fs::symlink_metadata(path)?;
            if metadata.is_file() {
                sizes.push(metadata.len());
            }
            Ok(())
        })
        .unwrap();
        sizes.sort_unstable();
        // The last one takes what rounding left: at most a byte a file.
        assert!(sizes[0] >= 499 && sizes[0] < 5_000, "{}", sizes[0]);
        assert!(sizes[299] <= 50_300 && sizes[299] > 40_000, "{}", sizes[299]);
    }

    #[test]
    fn a_work_set_is_what_it_says_and_repeats() {
        let folder = tempfile::tempdir().unwrap();
        for (cargo, scale, files) in [
            (Cargo::One, 0.0001, 1),
            (Cargo::Bulk, 0.00001, 1),
            (Cargo::Office, 0.001, 300),
            (Cargo::Small, 0.01, 30),
        ] {
            let root = folder.path().join(cargo.name());
            let content = cargo.generate(&root, scale).unwrap();
            assert_eq!((content.files, content), (files, count(&root).unwrap()));
            assert!(cargo != Cargo::Office || content.bytes == 1_000_000);
            let expected = cargo.expected(scale);
            assert_eq!(expected.files, files);
            assert!(expected.bytes.abs_diff(content.bytes) < content.bytes / 5);
        }
        for (work, scale, files) in [
            (Work::Small, 0.0005, 50),
            (Work::Big, 0.00001, 1),
            (Work::Mixed, 0.01, 30),
        ] {
            let (a, b) = (folder.path().join("a"), folder.path().join("b"));
            let content = work.generate(&a, scale).unwrap();
            assert_eq!(content.files, files);
            assert_eq!(content, count(&a).unwrap());
            assert_eq!(content, work.generate(&b, scale).unwrap());
            crate::compare::trees_equal_content(&a, &b);
            read_all(&a).unwrap();
            fs::remove_dir_all(&a).unwrap();
            fs::remove_dir_all(&b).unwrap();
        }
    }
}
