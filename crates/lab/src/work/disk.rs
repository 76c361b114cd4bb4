//! Writes works to a disk and compares copies with them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use walkdir::WalkDir;

use super::content::Writer;
use super::{Entry, Plan};

/// Size of a read or write in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// Extra files in a copy that are counted before the count ends.
const STRANGERS_MAX: u64 = 1000;

impl Plan {
    /// Creates all files below a folder, which is created too. Ends early when `stop` returns true.
    ///
    /// # Errors
    /// A file cannot be written, or the call was stopped (`Interrupted`).
    pub fn write(&self, root: &Path, stop: &dyn Fn() -> bool) -> io::Result<()> {
        fs::create_dir_all(root)?;
        for folder in self.folders() {
            fs::create_dir_all(root.join(folder))?;
        }
        let mut buffer = vec![0; CHUNK_BYTES];
        for entry in &self.entries {
            write(entry, &root.join(&entry.path), &mut buffer, stop)?;
        }
        Ok(())
    }

    /// Checks that a copy holds these files and no others, byte for byte. The inner error is the
    /// first difference, for people.
    ///
    /// # Errors
    /// The source cannot be read.
    pub fn compare(&self, source: &Path, copy: &Path) -> io::Result<Result<(), String>> {
        let mut buffers = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
        for entry in &self.entries {
            if let Err(wrong) = same(entry, source, copy, &mut buffers)? {
                return Ok(Err(wrong));
            }
        }
        let found = count(copy, self.files() + STRANGERS_MAX).unwrap_or(0);
        if found != self.files() {
            return Ok(Err(format!("{found} files arrived instead of {}", self.files())));
        }
        Ok(Ok(()))
    }
}

impl Plan {
    /// Checks that the output of a listing names every file, a line each. The inner error is the
    /// difference, for people.
    ///
    /// # Errors
    /// The output cannot be read.
    pub fn compare_listing(&self, output: &Path) -> io::Result<Result<(), String>> {
        let text = String::from_utf8_lossy(&fs::read(output)?).into_owned();
        let prefix = self
            .entries
            .first()
            .map_or("", |entry| entry.path.trim_end_matches(|c: char| c != ' '));
        let listed = text.lines().filter(|line| line.contains(prefix)).count() as u64;
        Ok(match listed == self.files() {
            true => Ok(()),
            false => Err(format!("{listed} of {} entries are listed", self.files())),
        })
    }
}

fn write(entry: &Entry, path: &Path, buffer: &mut [u8], stop: &dyn Fn() -> bool) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut writer = Writer::new(entry.content, entry.seed);
    let mut left = entry.bytes;
    while left > 0 {
        if stop() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let length = left.min(CHUNK_BYTES as u64) as usize;
        writer.fill(&mut buffer[..length]);
        file.write_all(&buffer[..length])?;
        left -= length as u64;
    }
    Ok(())
}

fn same(
    entry: &Entry,
    source: &Path,
    copy: &Path,
    (one, two): &mut (Vec<u8>, Vec<u8>),
) -> io::Result<Result<(), String>> {
    let mut source = File::open(source.join(&entry.path))?;
    let mut copy = match File::open(copy.join(&entry.path)) {
        Ok(file) => file,
        Err(error) => return Ok(Err(format!("{} did not arrive: {error}", entry.path))),
    };
    let size = copy.metadata()?.len();
    if size != entry.bytes {
        return Ok(Err(format!(
            "{} arrived with {size} bytes of {}",
            entry.path, entry.bytes
        )));
    }
    let mut left = entry.bytes;
    while left > 0 {
        let length = left.min(CHUNK_BYTES as u64) as usize;
        source.read_exact(&mut one[..length])?;
        if let Err(error) = copy.read_exact(&mut two[..length]) {
            return Ok(Err(format!("{} cannot be read: {error}", entry.path)));
        }
        if one[..length] != two[..length] {
            return Ok(Err(format!(
                "{} differs after byte {}",
                entry.path,
                entry.bytes - left
            )));
        }
        left -= length as u64;
    }
    Ok(Ok(()))
}

/// Counts the files below a folder, up to one more than `most`.
fn count(root: &Path, most: u64) -> io::Result<u64> {
    let mut found = 0;
    for entry in WalkDir::new(root) {
        found += u64::from(!entry?.file_type().is_dir());
        if found > most {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::{SEED, Work};
    use super::*;

    /// FNV-1a over names and bytes.
    fn hash(plan: &Plan, root: &Path) -> u64 {
        let mut hash = 0xCBF2_9CE4_8422_2325_u64;
        let mut take = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
            }
        };
        for entry in &plan.entries {
            take(entry.path.as_bytes());
            take(&fs::read(root.join(&entry.path)).unwrap());
        }
        hash
    }

    #[test]
    fn what_is_written_is_what_was_planned_and_repeats() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let plan = Work::Small3000.plan(SEED, 0.01);
        plan.write(&one, &|| false).unwrap();
        plan.write(&two, &|| false).unwrap();
        assert_eq!(count(&one, u64::MAX).unwrap(), plan.files());
        assert_eq!(plan.compare(&one, &two).unwrap(), Ok(()));
        // Another value here means that published results were made of other bytes.
        assert_eq!(hash(&plan, &one), hash(&plan, &two));
        assert_eq!(hash(&plan, &one), 10_802_755_342_021_822_129);
    }

    #[test]
    fn every_difference_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let plan = Work::Small3000.plan(SEED, 0.002);
        let fresh = || {
            _ = fs::remove_dir_all(&two);
            plan.write(&two, &|| false).unwrap();
            two.join(&plan.entries[3].path)
        };
        plan.write(&one, &|| false).unwrap();
        let wrong = || plan.compare(&one, &two).unwrap().unwrap_err();
        fs::remove_file(fresh()).unwrap();
        assert!(wrong().contains("did not arrive"), "{}", wrong());
        let path = fresh();
        let mut bytes = fs::read(&path).unwrap();
        bytes[77] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert!(wrong().contains("differs"), "{}", wrong());
        bytes.pop();
        fs::write(&path, &bytes).unwrap();
        assert!(wrong().contains("bytes of"), "{}", wrong());
        fs::write(fresh().with_file_name("more"), "x").unwrap();
        assert!(wrong().contains("instead of"), "{}", wrong());
        let stopped = plan.write(&two, &|| true).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
