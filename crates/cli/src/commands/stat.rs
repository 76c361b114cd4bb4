//! `ropeway stat`.

use std::path::Path;

use ropeway_vfs::{End, Kind, Metadata, SDDL_XATTR, STREAM_XATTR_PREFIX, Xattr};
use serde_json::{Map, Value, json};

use super::ls::printable;
use super::nodes::{self, DOS_ATTRIBUTES, Printer, fields, local_time, marks};
use crate::args::StatArgs;
use crate::failure::Failure;
use crate::servers::Servers;
use crate::ui::format;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The only argument could not be examined.
pub(crate) fn run(args: &StatArgs) -> Result<u8, Failure> {
    // Security descriptors are shown whether they are kept by copies or not.
    let share = crate::args::ShareArgs {
        acls: true,
        ..args.share.clone()
    };
    let servers = Servers::new(&share)?;
    nodes::run(&servers, async {
        let mut printer = Printer::new(args.json);
        for path in &args.paths {
            let result = show(path, &servers, &mut printer).await;
            printer.finish_argument(result, args.paths.len() == 1)?;
        }
        Ok(printer.finish())
    })
}

async fn show(path: &Path, servers: &Servers, printer: &mut Printer) -> Result<(), Failure> {
    let located = nodes::find(path, false, servers).await?;
    let metadata = located.metadata(End::Source).await?;
    let link = match metadata.kind {
        Kind::Symlink => located.tree.read_link(&located.path).await.ok(),
        _ => None,
    };
    let link = link.map(|text| printable(&String::from_utf8_lossy(&text)));
    // Attributes that cannot be read are left out, like everything unknown.
    let extras = Extras::of(&located.tree.xattrs(&located.path).await.unwrap_or_default());
    printer.done();
    if printer.is_json() {
        let mut known = fields(&located.shown, &metadata, link.as_deref());
        known.extend(extras.fields());
        printer.object("node", known);
        return Ok(());
    }
    printer.line(&printable(&located.shown));
    for (name, value) in rows(&metadata, link).into_iter().chain(extras.rows()) {
        printer.line(&format!("  {name:<12}{value}"));
    }
    Ok(())
}

/// Extended attributes of a node, sorted by their meaning.
#[derive(Default)]
struct Extras {
    /// Owner, group and DACL as SDDL ([MS-DTYP] 2.5.1).
    sddl: Option<String>,
    /// Names and sizes of alternate data streams.
    streams: Vec<(String, usize)>,
    /// Names and sizes of the other extended attributes.
    xattrs: Vec<(String, usize)>,
}

impl Extras {
    fn of(xattrs: &[Xattr]) -> Self {
        let mut extras = Self::default();
        for xattr in xattrs {
            let name = |bytes: &[u8]| printable(&String::from_utf8_lossy(bytes));
            let stream = xattr.name.strip_prefix(STREAM_XATTR_PREFIX);
            let stream = stream.map(|stream| stream.strip_suffix(b":$DATA").unwrap_or(stream));
            match stream {
                // Samba stores a stream's contents with a 0 byte at the end.
                Some(stream) => {
                    let size = xattr.value.len().saturating_sub(1);
                    extras.streams.push((name(stream), size));
                }
                None if xattr.name == SDDL_XATTR => {
                    extras.sddl = (!xattr.value.is_empty()).then(|| name(&xattr.value));
                }
                None => extras.xattrs.push((name(&xattr.name), xattr.value.len())),
            }
        }
        extras
    }

    fn fields(&self) -> Map<String, Value> {
        let list = |list: &[(String, usize)]| {
            let objects = list
                .iter()
                .map(|(name, size)| json!({"name": name, "size": size}));
            (!list.is_empty()).then(|| Value::Array(objects.collect()))
        };
        let known = [
            ("sddl", self.sddl.clone().map(Value::from)),
            ("streams", list(&self.streams)),
            ("xattrs", list(&self.xattrs)),
        ];
        let known = known.into_iter();
        known
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect()
    }

    fn rows(self) -> impl Iterator<Item = (&'static str, String)> {
        let sized = |kind| move |(name, size): (String, usize)| (kind, format!("{name} ({size})"));
        let streams = self.streams.into_iter().map(sized("stream"));
        let xattrs = self.xattrs.into_iter().map(sized("xattr"));
        let sddl = self.sddl.into_iter().map(|sddl| ("security", sddl));
        sddl.chain(streams).chain(xattrs)
    }
}

fn rows(metadata: &Metadata, link: Option<String>) -> Vec<(&'static str, String)> {
    let size = |bytes: u64| match bytes {
        0..1024 => format::bytes(bytes),
        _ => format!("{} ({})", format::bytes(bytes), format::count(bytes)),
    };
    let kind = match metadata.kind {
        Kind::File => "file",
        Kind::Directory => "folder",
        Kind::Symlink => "symbolic link",
        Kind::Fifo => "FIFO",
        Kind::Socket => "socket",
        Kind::CharDevice => "character device",
        Kind::BlockDevice => "block device",
    };
    let time = |time| local_time(time, true);
    let rows = [
        ("kind", Some(kind.to_owned())),
        ("points to", link),
        ("size", Some(size(metadata.size))),
        ("allocated", metadata.allocated.map(size)),
        ("modified", metadata.modified.known().map(time)),
        ("created", metadata.created.map(time)),
        ("changed", metadata.changed.map(time)),
        ("accessed", metadata.accessed.map(time)),
        (
            "mode",
            metadata
                .mode
                .map(|mode| format!("{mode:04o} {}", marks(metadata))),
        ),
        (
            "owner",
            metadata
                .owner
                .map(|owner| format!("user {}, group {}", owner.user, owner.group)),
        ),
        ("attributes", metadata.dos_attributes.map(attributes)),
        ("links", (metadata.links > 1).then(|| metadata.links.to_string())),
        (
            "device",
            metadata.device.map(|(major, minor)| format!("{major}:{minor}")),
        ),
        (
            "identity",
            metadata.id.map(|id| format!("{:x}:{:x}", id.volume, id.index)),
        ),
    ];
    rows.into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

fn attributes(bits: u32) -> String {
    let names: Vec<&str> = DOS_ATTRIBUTES
        .iter()
        .filter(|(bit, ..)| bits & bit != 0)
        .map(|(_, name, _)| *name)
        .collect();
    match names.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_vfs::Timestamp;

    #[test]
    fn unknown_metadata_is_left_out() {
        let mut metadata = Metadata::bare(Kind::File, 2048, Timestamp(0));
        let names = |metadata: &Metadata| {
            rows(metadata, None)
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&metadata), ["kind", "size", "modified"]);
        metadata.dos_attributes = Some(0x22);
        metadata.links = 2;
        let rows = rows(&metadata, None);
        assert!(rows.contains(&("size", "2.0 KiB (2,048)".to_owned())), "{rows:?}");
        assert!(
            rows.contains(&("attributes", "hidden, archive".to_owned())),
            "{rows:?}"
        );
        assert_eq!(attributes(0), "none");
    }
}
