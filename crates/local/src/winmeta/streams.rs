//! Alternate data streams as Samba's `vfs_streams_xattr` stores them: the attribute
//! `user.DosStream.NAME:$DATA`, whose value is the content and one NUL byte.

use ropeway_vfs::{Name, STREAM_XATTR_PREFIX};

use crate::xattr;

/// End of the attribute's name: the stream's type ([MS-FSCC] 2.1.5).
const SUFFIX: &[u8] = b":$DATA";

/// Longest content in bytes: the largest value of any volume without its NUL. Most volumes hold less (ext4: 4 KiB for
/// all attributes of a node).
pub(crate) const LENGTH_MAX: usize = xattr::BYTES_MAX - 1;

/// Longest name: XATTR_NAME_MAX (255) without prefix and suffix.
const NAME_MAX: usize = 255 - STREAM_XATTR_PREFIX.len() - SUFFIX.len();

/// Returns the attribute of a stream; `None` if no stream can have that name.
pub(crate) fn attribute_of(name: &Name) -> Option<Vec<u8>> {
    let bytes = name.as_bytes();
    let fits = bytes.len() <= NAME_MAX && !bytes.contains(&b':');
    fits.then(|| [STREAM_XATTR_PREFIX, bytes, SUFFIX].concat())
}

/// Returns the name of the stream that an attribute holds; `None` if it holds none.
pub(crate) fn name_of(attribute: &[u8]) -> Option<Name> {
    let name = attribute.strip_prefix(STREAM_XATTR_PREFIX)?;
    Name::new(name.strip_suffix(SUFFIX).unwrap_or(name))
}

/// Returns the content in a value.
pub(crate) fn content_of(mut value: Vec<u8>) -> Vec<u8> {
    value.pop();
    value
}

/// Returns the size of the content in a value of this length.
pub(crate) fn content_size(value_size: usize) -> usize {
    value_size.saturating_sub(1)
}

/// Returns the value that holds a content.
pub(crate) fn value_of(mut content: Vec<u8>) -> Vec<u8> {
    content.push(0);
    content
}
