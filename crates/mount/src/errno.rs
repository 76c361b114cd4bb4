//! The store's errors as errno.

use ropeway_vfs::{Error, ErrorKind};
use rustix::io::Errno;

/// Result of an operation of the file system.
pub(crate) type Answer<T> = Result<T, Errno>;

/// Returns the errno of an error: the operating system's own where there is one, since it is more
/// exact than the kind (EPERM and EACCES are one kind).
pub(crate) fn of(error: &Error) -> Errno {
    let raw = error.source.as_ref().and_then(std::io::Error::raw_os_error);
    match (error.kind, raw) {
        // The kernel says EXDEV for a link that leads out of the root.
        (ErrorKind::SymbolicLink, _) | (_, None) => Errno::from_raw_os_error(error.kind.errno()),
        (_, Some(raw)) => Errno::from_raw_os_error(raw),
    }
}

/// Returns the errno of an error about an extended attribute; one that is missing is ENODATA.
pub(crate) fn of_xattr(error: &Error) -> Errno {
    match error.kind {
        ErrorKind::NotFound => Errno::NODATA,
        _ => of(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::{Op, RelPath};

    #[test]
    fn the_systems_own_errno_comes_first() {
        let of_raw = |raw| {
            let source = std::io::Error::from_raw_os_error(raw);
            of(&Error::from_io(Op::Open, &RelPath::root(), source))
        };
        assert_eq!(of_raw(1), Errno::PERM);
        assert_eq!(of_raw(13), Errno::ACCESS);
        assert_eq!(of_raw(122), Errno::DQUOT);
        let of_kind = |kind| of(&Error::new(Op::Open, &RelPath::root(), kind));
        assert_eq!(of_kind(ErrorKind::NotFound), Errno::NOENT);
        assert_eq!(of_kind(ErrorKind::Gone), Errno::STALE);
        assert_eq!(of_kind(ErrorKind::Unsupported), Errno::OPNOTSUPP);
        assert_eq!(of_kind(ErrorKind::Unreachable), Errno::HOSTUNREACH);
        let missing = Error::new(Op::Xattr, &RelPath::root(), ErrorKind::NotFound);
        assert_eq!(of_xattr(&missing), Errno::NODATA);
    }
}
