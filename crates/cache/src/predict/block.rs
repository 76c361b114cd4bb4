//! What predictions speak of: the number of a block.

/// Largest number of a file, plus one.
pub const FILES_MAX: u32 = 1 << 24;
/// Blocks of a file that predictions know: 1 TiB in blocks of 64 KiB.
pub const FILE_BLOCKS_MAX: u64 = 1 << 24;
/// Numbers have 48 bits: six bytes in the tables.
pub(super) const NUMBER_MAX: u64 = (1 << 48) - 1;

/// A block: a file's number, which the caller hands out, and a position in it. Neighbours in a file
/// have neighbouring numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(u64);

impl Block {
    /// Returns the block of a file, or `None` if either number is out of bounds.
    pub fn new(file: u32, index: u64) -> Option<Self> {
        let is_known = file < FILES_MAX && index < FILE_BLOCKS_MAX;
        is_known.then_some(Self(u64::from(file) << 24 | index))
    }

    /// Returns the block with this number; bits above the 48th are dropped.
    pub fn from_number(number: u64) -> Self {
        Self(number & NUMBER_MAX)
    }

    /// Returns its number.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the number of its file.
    pub fn file(self) -> u32 {
        (self.0 >> 24) as u32
    }

    /// Returns its position in the file.
    pub fn index(self) -> u64 {
        self.0 & (FILE_BLOCKS_MAX - 1)
    }

    /// Returns the block at a distance in the same file.
    pub(super) fn at(self, distance: i64) -> Option<Self> {
        let number = self.0.checked_add_signed(distance)?;
        let block = Self::from_number(number);
        (number <= NUMBER_MAX && block.file() == self.file()).then_some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_file_and_a_position_and_does_not_leave_its_file() {
        let block = Block::new(7, 3).expect("within bounds");
        assert_eq!((block.file(), block.index()), (7, 3));
        assert_eq!(block.at(-3).map(Block::index), Some(0));
        assert_eq!(block.at(-4), None);
        let last = Block::new(FILES_MAX - 1, FILE_BLOCKS_MAX - 1).expect("within bounds");
        assert_eq!(last.at(1), None);
        assert_eq!(Block::new(FILES_MAX, 0), None);
        assert_eq!(Block::new(0, FILE_BLOCKS_MAX), None);
    }
}
