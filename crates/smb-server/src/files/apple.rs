//! Apple's `AAPL` create context, and the additional information in listings for macOS.
//!
//! With the reply to the context, the Finder copies on the server and relies on flushes. The
//! additional information saves it from opening each listed file.

use ropeway_smb_wire::Text;
use ropeway_smb_wire::create_context::{
    AppleReply, AppleReplyMap, AppleServerCaps, AppleServerQuery, AppleVolumeCaps,
};
use ropeway_smb_wire::info::AppleRecord;
use ropeway_vfs::store::{NodeOpen, NodeStat, StreamOpen};
use ropeway_vfs::{Kind, Name, RelPath};

use crate::files::security;
use crate::share::Share;
use crate::token::Token;

/// Model of this server, by which the Finder chooses an icon. Samba uses the same one, so clients
/// know it.
const MODEL: &str = "MacSamba";

/// Properties of a share that the reply depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AppleView {
    /// Model to report, if not the default one.
    pub(crate) model: Option<&'static str>,
    /// Whether names that differ only in case are different files.
    pub(crate) case_sensitive: bool,
}

/// Answers a server query.
///
/// Listings carry additional information ([`record`]) if the client supports it. NFS permissions
/// and paths made of file ids are not offered.
pub(crate) fn reply(query: &AppleServerQuery, view: AppleView) -> AppleReply {
    let asked = |part| query.request_map.contains(part);
    let mut volume_caps = AppleVolumeCaps::SUPPORTS_FULL_SYNC;
    if view.case_sensitive {
        volume_caps |= AppleVolumeCaps::CASE_SENSITIVE;
    }
    let mut server_caps = AppleServerCaps::SUPPORTS_OSX_COPYFILE | AppleServerCaps::UNIX_BASED;
    if wants_listings(query) {
        server_caps |= AppleServerCaps::SUPPORTS_READ_DIR_ATTR;
    }
    AppleReply {
        server_caps: asked(AppleReplyMap::SERVER_CAPS).then_some(server_caps),
        volume_caps: asked(AppleReplyMap::VOLUME_CAPS).then_some(volume_caps),
        model: asked(AppleReplyMap::MODEL_INFO).then(|| Text::from(view.model.unwrap_or(MODEL))),
    }
}

/// Whether the reply offers copies of whole files.
pub(crate) fn offers_copies(query: &AppleServerQuery) -> bool {
    query.request_map.contains(AppleReplyMap::SERVER_CAPS)
}

/// Whether the client wants additional information in listings from now on.
pub(crate) fn wants_listings(query: &AppleServerQuery) -> bool {
    query.request_map.contains(AppleReplyMap::SERVER_CAPS)
        && query
            .client_caps
            .contains(AppleServerCaps::SUPPORTS_READ_DIR_ATTR)
}

/// Names of the streams with the Finder's information and the resource fork in macOS.
const AFP_INFO: &[u8] = b"AFP_AfpInfo";
const AFP_RESOURCE: &[u8] = b"AFP_Resource";
/// Length of `AFP_AfpInfo` in bytes: signature, version, four bytes, backup time, the Finder's 32
/// bytes, and 12 more.
const AFP_INFO_LEN: usize = 60;
const FINDER_AT: usize = 16;
/// 2000-01-01 in seconds since 1970, the epoch of `finder_info`.
const EPOCH: i64 = 946_684_800;
/// `S_IFDIR`, `S_IFLNK`, `S_IFREG` (stat(2)).
const MODE_DIRECTORY: u32 = 0o040_000;
const MODE_LINK: u32 = 0o120_000;
const MODE_FILE: u32 = 0o100_000;

/// Returns the additional information about a listed file. What cannot be read is left empty, so
/// that the listing does not fail.
pub(crate) fn record(share: &Share, token: &Token, path: &RelPath, stat: &NodeStat) -> AppleRecord {
    let kind = match stat.kind {
        Kind::Directory => MODE_DIRECTORY,
        Kind::Symlink => MODE_LINK,
        _ => MODE_FILE,
    };
    let mut record = AppleRecord {
        // Kind and permissions fit 16 bits.
        mode: (kind | stat.mode & 0o7777) as u16,
        ..AppleRecord::default()
    };
    let added = stat.created.to_unix().0.saturating_sub(EPOCH);
    // Fits until 2136.
    let added = u32::try_from(added.max(0)).unwrap_or(u32::MAX);
    record.finder_info[12..].copy_from_slice(&added.to_be_bytes());
    let stat_open = NodeOpen {
        link_itself: true,
        ..NodeOpen::default()
    };
    let Ok(opened) = share.store.open(path, &stat_open) else {
        return record;
    };
    let rights = security::rights(share, token, &*opened.node, stat, path);
    record.max_access = rights.map_or(0, |rights| rights.bits());
    let stream = |name| {
        let (node, _) = opened
            .node
            .open_stream(&Name::new(name)?, &StreamOpen::default())
            .ok()?;
        Some(node)
    };
    if let Some(fork) = stream(AFP_RESOURCE)
        && let Ok(stat) = fork.stat()
    {
        record.resource_fork_len = stat.size;
    }
    let mut info = [0; AFP_INFO_LEN];
    if let Some(node) = stream(AFP_INFO)
        && matches!(node.read_at(&mut info, 0), Ok(AFP_INFO_LEN))
        && info.starts_with(b"AFP\0")
    {
        let finder = &info[FINDER_AT..][..32];
        if stat.kind == Kind::File {
            record.finder_info[..8].copy_from_slice(&finder[..8]);
        }
        record.finder_info[8..10].copy_from_slice(&finder[8..10]);
        record.finder_info[10..12].copy_from_slice(&finder[24..26]);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use ropeway_smb_wire::create::AccessMask;

    #[test]
    fn records_contain_what_the_finder_needs() {
        let share = testing::share();
        let file = testing::open(&share, "file", AccessMask::FILE_ALL);
        let put = |name: &[u8], content: &[u8]| {
            let how = StreamOpen {
                create: true,
                exclusive: false,
            };
            let (node, _) = file.node.open_stream(&Name::new(name).unwrap(), &how).unwrap();
            node.write_at(content, 0).unwrap();
        };
        let mut info = [0; AFP_INFO_LEN];
        info[..8].copy_from_slice(b"AFP\0\0\x01\0\0");
        info[FINDER_AT..][..10].copy_from_slice(b"TEXTttxt\x40\x08");
        info[FINDER_AT + 24..][..2].copy_from_slice(b"\x01\x02");
        put(AFP_INFO, &info);
        put(AFP_RESOURCE, &[7; 321]);
        let stat = file.node.stat().unwrap();
        let record = record(&share, &testing::token(), &testing::path("file"), &stat);
        assert_eq!(record.resource_fork_len, 321);
        assert_eq!(&record.finder_info[..12], b"TEXTttxt\x40\x08\x01\x02");
        assert_eq!(record.max_access, AccessMask::FILE_ALL.bits());
        assert_eq!(u32::from(record.mode), MODE_FILE | stat.mode);
    }

    #[test]
    fn each_query_is_answered() {
        let mut query = AppleServerQuery {
            request_map: AppleReplyMap::SERVER_CAPS | AppleReplyMap::VOLUME_CAPS | AppleReplyMap::MODEL_INFO,
            client_caps: AppleServerCaps::SUPPORTS_READ_DIR_ATTR,
        };
        let answer = reply(&query, AppleView::default());
        let always = AppleServerCaps::SUPPORTS_OSX_COPYFILE | AppleServerCaps::UNIX_BASED;
        let all = always | AppleServerCaps::SUPPORTS_READ_DIR_ATTR;
        assert_eq!(answer.server_caps, Some(all));
        let plain = AppleServerQuery {
            client_caps: AppleServerCaps::default(),
            ..query
        };
        let plain = reply(&plain, AppleView::default());
        assert_eq!(
            plain.server_caps,
            Some(always),
            "the client does not understand it"
        );
        assert_eq!(answer.volume_caps, Some(AppleVolumeCaps::SUPPORTS_FULL_SYNC));
        assert_eq!(answer.model, Some(MODEL.into()));
        query.request_map = AppleReplyMap::default();
        assert_eq!(reply(&query, AppleView::default()), AppleReply::default());
    }
}
