//! Converts between the times of SMB and those of a tree. Pure.

use ropeway_smb_wire::FileTime;
use ropeway_vfs::Timestamp;

/// Converts a time to that of a tree.
pub fn timestamp(time: FileTime) -> Timestamp {
    let (seconds, nanoseconds) = time.to_unix();
    Timestamp::from_unix(seconds, nanoseconds)
}

/// Converts a time to that of SMB: steps of 100 ns, years 1601 to 30828.
pub fn file_time(time: Timestamp) -> FileTime {
    let (seconds, nanoseconds) = time.to_unix();
    FileTime::from_unix(seconds, nanoseconds)
}

/// Converts a time; `None` if it is unknown. 0 is no time ([MS-FSCC] 2.4.7), nor are -1 and -2,
/// which have a special meaning when times are set, nor any other negative value: a FILETIME is not
/// negative ([MS-FSCC] 2.1.1).
pub fn known(time: FileTime) -> Option<Timestamp> {
    (time != FileTime::KEEP && time <= FileTime::MAX).then(|| timestamp(time))
}
