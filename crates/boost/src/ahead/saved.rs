//! What was learned, as a file in the cache's folder.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `ROPELRND` |
//! | 4 | files |
//! | 4 | programs |
//! | 8 each program | hash of its name |
//! | each file | share (16), volume (8), file (16), blocks (8), length of the path (2), path |
//! | 4 | CRC-32 of all before |
//! | rest | what [`Superfetch::encode`] gives |
//!
//! Numbers are little-endian. A file's number is its position. Where anything is wrong, nothing is
//! used: learning begins anew.

use ropeway_cache::FileKey;
use ropeway_cache::predict::{DecodeError, Superfetch};
use ropeway_vfs::RelPath;

use super::NAMES_MAX;
use super::table::Table;

const MAGIC: &[u8; 8] = b"ROPELRND";

/// Reasons for not using what was saved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SavedError {
    #[error("the saved file is no saved file, or damaged")]
    Damaged,
    #[error(transparent)]
    Predictions(#[from] DecodeError),
}

/// Returns everything as bytes.
pub(super) fn encode(learned: &Superfetch, blocks: usize, table: &Table, names: &[u64]) -> Vec<u8> {
    let files = table.files();
    let mut bytes = MAGIC.to_vec();
    // Both are bounded far below 2^32, and a path of a store has fewer than 65,536 bytes.
    bytes.extend_from_slice(&(files.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&(names.len() as u32).to_le_bytes());
    bytes.extend(names.iter().flat_map(|name| name.to_le_bytes()));
    for file in files {
        let path = file.path.as_bytes();
        // A longer one cannot be opened either.
        let path = if path.len() > usize::from(u16::MAX) {
            &[]
        } else {
            path
        };
        bytes.extend_from_slice(&file.key.share);
        bytes.extend_from_slice(&file.key.volume.to_le_bytes());
        bytes.extend_from_slice(&file.key.file.to_le_bytes());
        bytes.extend_from_slice(&file.blocks.to_le_bytes());
        bytes.extend_from_slice(&(path.len() as u16).to_le_bytes());
        bytes.extend_from_slice(path);
    }
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes.extend(learned.encode(blocks));
    bytes
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], SavedError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(SavedError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const COUNT: usize>(&mut self) -> Result<[u8; COUNT], SavedError> {
        let taken = self.bytes(COUNT)?;
        taken.try_into().map_err(|_| SavedError::Damaged)
    }
}

/// Returns what was saved, for a cache of so many blocks and a table of so many files.
pub(super) fn decode(
    bytes: &[u8],
    blocks: usize,
    files_max: usize,
) -> Result<(Superfetch, Table, Vec<u64>), SavedError> {
    let mut reader = Reader(bytes);
    if reader.array()? != *MAGIC {
        return Err(SavedError::Damaged);
    }
    let files = u32::from_le_bytes(reader.array()?) as usize;
    let names = u32::from_le_bytes(reader.array()?) as usize;
    if files > files_max || names > NAMES_MAX {
        return Err(SavedError::Damaged);
    }
    let names: Result<Vec<u64>, _> = (0..names)
        .map(|_| reader.array().map(u64::from_le_bytes))
        .collect();
    let (names, mut table) = (names?, Table::new(files_max));
    for _ in 0..files {
        let key = FileKey {
            share: reader.array()?,
            volume: u64::from_le_bytes(reader.array()?),
            file: u128::from_le_bytes(reader.array()?),
        };
        let blocks = u64::from_le_bytes(reader.array()?);
        let length = usize::from(u16::from_le_bytes(reader.array()?));
        let path = RelPath::parse(reader.bytes(length)?).ok_or(SavedError::Damaged)?;
        if !table.load(key, path, blocks) {
            return Err(SavedError::Damaged);
        }
    }
    let length = bytes.len() - reader.0.len();
    if u32::from_le_bytes(reader.array()?) != crc32fast::hash(&bytes[..length]) {
        return Err(SavedError::Damaged);
    }
    Ok((Superfetch::decode(reader.0, blocks)?, table, names))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: usize = 128;

    fn saved() -> Vec<u8> {
        let mut table = Table::new(16);
        for file in 0..5 {
            let key = FileKey {
                share: [3; 16],
                volume: 9,
                file,
            };
            let path = RelPath::parse(format!("folder/ü {file}").as_bytes()).unwrap();
            let (number, _) = table.number(key, &path);
            table.asked(number, u64::from(number) * 7);
        }
        encode(&Superfetch::new(BLOCKS), BLOCKS, &table, &[1, 2, u64::MAX])
    }

    #[test]
    fn what_was_saved_comes_back() {
        let bytes = saved();
        let (learned, table, names) = decode(&bytes, BLOCKS, 16).unwrap();
        assert_eq!(names, [1, 2, u64::MAX]);
        assert_eq!(table.files().len(), 5);
        assert_eq!(table.get(4).unwrap().path.as_bytes(), "folder/ü 4".as_bytes());
        assert_eq!(table.get(4).unwrap().blocks, 29);
        assert_eq!(encode(&learned, BLOCKS, &table, &names), bytes);
        assert!(decode(&bytes, BLOCKS + 1, 16).is_err(), "another cache");
        assert!(decode(&bytes, BLOCKS, 4).is_err(), "too many files");
    }

    proptest! {
        /// Damage is noticed, and whatever a file holds, reading it does not fail otherwise.
        #[test]
        fn damage_is_noticed(place in any::<prop::sample::Index>(), bit in 0..8_u8, cut in any::<bool>()) {
            let mut bytes = saved();
            let place = place.index(bytes.len());
            if cut {
                bytes.truncate(place);
            } else {
                bytes[place] ^= 1 << bit;
            }
            prop_assert!(decode(&bytes, BLOCKS, 16).is_err());
        }
    }
}
