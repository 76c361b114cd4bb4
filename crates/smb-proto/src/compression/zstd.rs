//! Zstandard ([RFC 8878]): one frame for each payload, without dictionary or checksum; the signature
//! or the seal covers it.
//!
//! A context lives for one payload. It costs a tenth of what the payload of 1 MiB does, and nothing
//! is kept for connections that are idle. Decompression is one call into a buffer of the claimed
//! size, so it allocates no window, whatever the frame's header asks for.

use zstd_safe::{CCtx, DCtx};

/// The compression level. Level 3 takes twice as long for 1 % (docs/adr/0038).
const LEVEL: i32 = 1;

/// Compresses `data`. Returns `None` if the library refuses, for example for lack of memory.
pub(super) fn compress(data: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(data.len()));
    let mut context = CCtx::try_create()?;
    context.compress(&mut out, data, LEVEL).ok()?;
    Some(out)
}

/// Decompresses into `out` and returns the length. Returns `None` if the bytes are malformed or do not
/// fit.
pub(super) fn decompress_into(compressed: &[u8], out: &mut [u8]) -> Option<usize> {
    DCtx::try_create()?.decompress(out, compressed).ok()
}
