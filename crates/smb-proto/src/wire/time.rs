//! Time as the wire carries it.

/// 100 ns since 1601-01-01 UTC ([MS-DTYP] 2.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileTime(pub u64);
