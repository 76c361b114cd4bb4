//! File attributes, a bit field ([MS-FSCC] 2.6).
//!
//! CREATE, CLOSE and all information levels of directories and files carry the same 32 bits.

use bitflags::bitflags;

bitflags! {
    /// File attributes ([MS-FSCC] 2.6). In a request 0 means "do not change"; a file without any
    /// attribute has `NORMAL`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct FileAttributes: u32 {
        /// The file cannot be written. No meaning for directories.
        const READONLY = 0x0000_0001;
        /// Hidden from ordinary listings.
        const HIDDEN = 0x0000_0002;
        /// Belongs to the operating system.
        const SYSTEM = 0x0000_0004;
        /// A directory.
        const DIRECTORY = 0x0000_0010;
        /// To be backed up; servers set it whenever content changes.
        const ARCHIVE = 0x0000_0020;
        /// Reserved for devices; never on a file system.
        const DEVICE = 0x0000_0040;
        /// No other attribute; valid only alone.
        const NORMAL = 0x0000_0080;
        /// Kept in memory where possible.
        const TEMPORARY = 0x0000_0100;
        /// Some ranges may be unallocated.
        const SPARSE_FILE = 0x0000_0200;
        /// Has a reparse point: a symbolic link, mount point, cloud file, ….
        const REPARSE_POINT = 0x0000_0400;
        /// Content is compressed.
        const COMPRESSED = 0x0000_0800;
        /// Content is on offline storage.
        const OFFLINE = 0x0000_1000;
        /// Excluded from the content index.
        const NOT_CONTENT_INDEXED = 0x0000_2000;
        /// Content is encrypted.
        const ENCRYPTED = 0x0000_4000;
        /// Protected by integrity streams (ReFS).
        const INTEGRITY_STREAM = 0x0000_8000;
        /// Not read by the background integrity scanner (ReFS).
        const NO_SCRUB_DATA = 0x0002_0000;
        /// Not present locally: opening recalls it (`EA` in old documents).
        const RECALL_ON_OPEN = 0x0004_0000;
        /// Always kept locally.
        const PINNED = 0x0008_0000;
        /// Kept locally only while in use.
        const UNPINNED = 0x0010_0000;
        /// Not fully present locally: reading recalls it.
        const RECALL_ON_DATA_ACCESS = 0x0040_0000;
        const _ = !0;
    }
}
