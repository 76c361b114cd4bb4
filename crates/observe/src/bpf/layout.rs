//! Offsets of the running kernel's structures, from its BTF.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use super::programs::{Layout, PositionLayout};
use crate::btf::{Btf, BtfError, HEADER_BYTES, Sections};

/// Types of the running kernel.
const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";
/// Bytes of each section that are read first. The kernel's basic types come first; the whole is ten
/// times as much, and is read a page at a time.
const FIRST_BYTES: usize = 512 << 10;

/// Returns the offsets.
///
/// # Errors
/// The kernel has no BTF, or lacks the structures.
pub(super) fn of_this_kernel(wake_bytes: u32) -> io::Result<Layout> {
    read(wake_bytes).map_err(|error| io::Error::new(error.kind(), format!("{BTF_PATH}: {error}")))
}

fn read(wake_bytes: u32) -> io::Result<Layout> {
    let file = File::open(BTF_PATH)?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)?;
    let sections = Sections::parse(&header).map_err(io::Error::other)?;
    let part = |range: &std::ops::Range<usize>, most: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; range.len().min(most)];
        file.read_exact_at(&mut bytes, range.start as u64)?;
        Ok(bytes)
    };
    let mut error = None;
    for most in [FIRST_BYTES, usize::MAX] {
        let (types, strings) = (part(&sections.types, most)?, part(&sections.strings, most)?);
        let btf = Btf::of_sections(&types, &strings).map_err(io::Error::other)?;
        match layout(&btf, wake_bytes) {
            Ok(layout) => return Ok(layout),
            Err(missing) => error = Some(missing),
        }
    }
    Err(io::Error::other(
        error.map_or_else(String::new, |error| error.to_string()),
    ))
}

fn layout(btf: &Btf<'_>, wake_bytes: u32) -> Result<Layout, BtfError> {
    Ok(Layout {
        task_pid: btf.offset("task_struct", "pid")?,
        task_tgid: btf.offset("task_struct", "tgid")?,
        position: position(btf).ok(),
        wake_bytes,
    })
}

fn position(btf: &Btf<'_>) -> Result<PositionLayout, BtfError> {
    let (table_size, table_files) = (btf.offset("fdtable", "max_fds")?, btf.offset("fdtable", "fd")?);
    if table_files.checked_sub(table_size) != Some(8) {
        return Err(BtfError::NoMember("fdtable".into(), "fd behind max_fds".into()));
    }
    Ok(PositionLayout {
        task_files: btf.offset("task_struct", "files")?,
        files_table: btf.offset("files_struct", "fdt")?,
        table_size,
        file_position: btf.offset("file", "f_pos")?,
    })
}
