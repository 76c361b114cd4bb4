//! `ropeway stat`.

use std::path::Path;

use ropeway_vfs::{Kind, Metadata};

use super::ls::printable;
use super::nodes::{self, DOS_ATTRIBUTES, Voice, fields, local_time, marks};
use crate::args::StatArgs;
use crate::failure::Failure;
use crate::servers::Servers;
use crate::ui::format;

/// Runs the command; gives its exit code.
///
/// # Errors
/// The only argument cannot be looked at.
pub(crate) fn run(args: &StatArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut voice = Voice::new(args.json);
        for path in &args.paths {
            let result = show(path, &servers, &mut voice).await;
            voice.take(result, args.paths.len() == 1)?;
        }
        Ok(voice.finish())
    })
}

async fn show(path: &Path, servers: &Servers, voice: &mut Voice) -> Result<(), Failure> {
    let spot = nodes::find(path, false, servers).await?;
    let metadata = spot.metadata(true).await?;
    let link = match metadata.kind {
        Kind::Symlink => spot.tree.read_link(&spot.path).await.ok(),
        _ => None,
    };
    let link = link.map(|text| printable(&String::from_utf8_lossy(&text)));
    voice.done();
    if voice.is_json() {
        voice.object("node", fields(&spot.shown, &metadata, link.as_deref()));
        return Ok(());
    }
    voice.line(&printable(&spot.shown));
    for (name, value) in rows(&metadata, link) {
        voice.line(&format!("  {name:<12}{value}"));
    }
    Ok(())
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
        ("leads to", link),
        ("size", Some(size(metadata.size))),
        ("allocated", metadata.allocated.map(size)),
        ("modified", Some(time(metadata.modified))),
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
    fn only_what_is_known_is_shown() {
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
