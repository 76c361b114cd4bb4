//! Commands on paths: DELETE ([MS-CIFS] 2.2.4.7), RENAME (2.2.4.8), NT_RENAME (2.2.4.66),
//! CREATE_DIRECTORY, DELETE_DIRECTORY and CHECK_DIRECTORY (2.2.4.1, 2.2.4.2, 2.2.4.17).

use ropeway_smb_wire::{Result, Writer};

use crate::message::{Block, write_block};
use crate::strings::Str;
use crate::words::{Reserved, words};

/// A request whose only content is a path: CREATE_DIRECTORY, DELETE_DIRECTORY, CHECK_DIRECTORY,
/// QUERY_INFORMATION.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRequest {
    /// The path in the share.
    pub path: Str,
}

impl PathRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        Ok(Self {
            path: Str::read_formatted(&mut block.bytes(), is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(w, |_| {}, |w| self.path.write_formatted(w));
    }
}

/// DELETE request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteRequest {
    /// Attributes of files that may be deleted besides ordinary ones.
    pub search_attributes: u16,
    /// The path; its last component may be a pattern.
    pub path: Str,
}

impl DeleteRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 1.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        Ok(Self {
            search_attributes: block.words_exactly(1)?.u16()?,
            path: Str::read_formatted(&mut block.bytes(), is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |w| w.u16(self.search_attributes),
            |w| self.path.write_formatted(w),
        );
    }
}

/// RENAME request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenameRequest {
    /// Attributes of files that may be renamed besides ordinary ones.
    pub search_attributes: u16,
    /// The old path; its last component may be a pattern.
    pub from: Str,
    /// The new path.
    pub to: Str,
}

impl RenameRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 1.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let search_attributes = block.words_exactly(1)?.u16()?;
        let mut bytes = block.bytes();
        Ok(Self {
            search_attributes,
            from: Str::read_formatted(&mut bytes, is_unicode)?,
            to: Str::read_formatted(&mut bytes, is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |w| w.u16(self.search_attributes),
            |w| {
                self.from.write_formatted(w);
                self.to.write_formatted(w);
            },
        );
    }
}

words! {
    /// Words of the NT_RENAME request.
    pub struct NtRenameWords {
        /// As in [`RenameRequest`].
        search_attributes: u16,
        /// Hard link 0x0103, rename 0x0104.
        information_level: u16,
        /// Reserved.
        cluster_count: Reserved<4>,
    }
}

impl NtRenameWords {
    /// `InformationLevel` of a hard link (SMB_NT_RENAME_SET_LINK_INFO).
    pub const LINK: u16 = 0x0103;
    /// `InformationLevel` of a rename (SMB_NT_RENAME_RENAME_FILE).
    pub const RENAME: u16 = 0x0104;
}

/// NT_RENAME request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtRenameRequest {
    /// The words.
    pub words: NtRenameWords,
    /// The old path.
    pub from: Str,
    /// The new path.
    pub to: Str,
}

impl NtRenameRequest {
    /// Decodes the block.
    ///
    /// # Errors
    /// Truncation, another number of words than 4.
    pub fn decode(block: &Block<'_>, is_unicode: bool) -> Result<Self> {
        let words = NtRenameWords::read(&mut block.words_exactly(4)?)?;
        let mut bytes = block.bytes();
        Ok(Self {
            words,
            from: Str::read_formatted(&mut bytes, is_unicode)?,
            to: Str::read_formatted(&mut bytes, is_unicode)?,
        })
    }

    /// Appends the block.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_block(
            w,
            |w| self.words.write(w),
            |w| {
                self.from.write_formatted(w);
                self.to.write_formatted(w);
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use ropeway_smb_wire::Text;

    use super::*;
    use crate::hostile;

    #[test]
    fn requests_round_trip() {
        for is_unicode in [true, false] {
            let name = |text: &str| match is_unicode {
                true => Str::unicode(&Text::from(text)),
                false => Str::oem(text.as_bytes()),
            };
            hostile::check(
                &[PathRequest { path: name("\\dir") }],
                |block| PathRequest::decode(block, is_unicode).ok(),
                |request, w| request.encode(w),
            );
            hostile::check(
                &[DeleteRequest {
                    search_attributes: 6,
                    path: name("\\dir\\*.tmp"),
                }],
                |block| DeleteRequest::decode(block, is_unicode).ok(),
                |request, w| request.encode(w),
            );
            hostile::check(
                &[RenameRequest {
                    search_attributes: 0x16,
                    from: name("\\a"),
                    to: name("\\long name"),
                }],
                |block| RenameRequest::decode(block, is_unicode).ok(),
                |request, w| request.encode(w),
            );
            let words = NtRenameWords {
                information_level: NtRenameWords::LINK,
                ..NtRenameWords::default()
            };
            hostile::check(
                &[NtRenameRequest {
                    words,
                    from: name("a"),
                    to: name("b"),
                }],
                |block| NtRenameRequest::decode(block, is_unicode).ok(),
                |request, w| request.encode(w),
            );
        }
    }
}
