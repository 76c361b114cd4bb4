//! What a file is, as a bit field ([MS-FSCC] 2.6).
//!
//! CREATE, CLOSE and every directory and file information level carry the same 32 bits.

use bitflags::bitflags;

bitflags! {
    /// File attributes ([MS-FSCC] 2.6). 0 in a request means "leave as it is"; a file without any says `NORMAL`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct FileAttributes: u32 {
        /// Cannot be written; for a directory without meaning.
        const READONLY = 0x0000_0001;
        /// Left out of ordinary listings.
        const HIDDEN = 0x0000_0002;
        /// Belongs to the operating system.
        const SYSTEM = 0x0000_0004;
        /// A directory.
        const DIRECTORY = 0x0000_0010;
        /// To be backed up; set by servers whenever content changes.
        const ARCHIVE = 0x0000_0020;
        /// A device; never on a file system.
        const DEVICE = 0x0000_0040;
        /// No other attribute; valid only alone.
        const NORMAL = 0x0000_0080;
        /// Kept in memory where possible.
        const TEMPORARY = 0x0000_0100;
        /// Ranges may be unallocated.
        const SPARSE_FILE = 0x0000_0200;
        /// Has a reparse point: a symbolic link, mount point, cloud file…
        const REPARSE_POINT = 0x0000_0400;
        /// Content is compressed.
        const COMPRESSED = 0x0000_0800;
        /// Content lies on offline storage.
        const OFFLINE = 0x0000_1000;
        /// Left out of the content index.
        const NOT_CONTENT_INDEXED = 0x0000_2000;
        /// Content is encrypted.
        const ENCRYPTED = 0x0000_4000;
        /// Protected by integrity streams (ReFS).
        const INTEGRITY_STREAM = 0x0000_8000;
        /// Not read by the background integrity scanner (ReFS).
        const NO_SCRUB_DATA = 0x0002_0000;
        /// No physical representation here: opening recalls it (also `EA` in old documents).
        const RECALL_ON_OPEN = 0x0004_0000;
        /// Kept local.
        const PINNED = 0x0008_0000;
        /// Not kept local except while in use.
        const UNPINNED = 0x0010_0000;
        /// Content is not all local: reading recalls it.
        const RECALL_ON_DATA_ACCESS = 0x0040_0000;
        const _ = !0;
    }
}
