//! What a share can hold.

use ropeway_smb_client::{Result, Text};
use ropeway_smb_wire::info::{FileFsAttributeInformation, FileFsVolumeInformation, FsAttributes};
use ropeway_smb1::wire::negotiate::Capabilities as ServerCapabilities;
use ropeway_smb1::wire::trans2::Level;
use ropeway_vfs::Capabilities;

use crate::share::Share;

/// Small files in flight: as many as servers take requests.
const SMALL_IN_FLIGHT: usize = 32;
/// Blocks of 1 MiB in flight: 50 requests of 60 KiB are three of them, and one waits.
const BLOCKS_IN_FLIGHT: usize = 4;
/// Folders processed at the same time. A guess.
const BATCHES_IN_FLIGHT: usize = 8;

/// Facts about a share's volume and its server.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) serial: u64,
    pub(super) has_numbers: bool,
    pub(super) has_passthrough: bool,
    attributes: FsAttributes,
    is_ntfs: bool,
    name_max: u32,
    has_nt_commands: bool,
    has_large_files: bool,
    is_unicode: bool,
    is_sequential: bool,
}

impl Volume {
    /// Asks the server. Old servers know less; what they do not know is left out.
    pub(super) async fn query(share: &Share) -> Result<Self> {
        let server = share.server().await?;
        let negotiated = server.negotiated();
        let has_nt_commands = negotiated.has_nt_commands();
        let has_passthrough = negotiated
            .capabilities
            .contains(ServerCapabilities::INFOLEVEL_PASSTHRU);
        let (mut serial, mut name_max) = (0, 0);
        let (mut attributes, mut is_ntfs) = (FsAttributes::default(), false);
        let mut has_numbers = false;
        if has_nt_commands {
            let volume = share.query_fs_as::<FileFsVolumeInformation>(Level::FS_VOLUME, 18);
            let features = share.query_fs_as::<FileFsAttributeInformation>(Level::FS_ATTRIBUTE, 12);
            let top = Text::default();
            let top = share.stat(&top, has_passthrough);
            let (volume, features, top) = futures_util::future::join3(volume, features, top).await;
            serial = volume.map_or(0, |volume| u64::from(volume.volume_serial_number));
            if let Ok(features) = features {
                attributes = features.attributes;
                is_ntfs = features.file_system_name.to_string_lossy() == "NTFS";
                name_max = features.maximum_component_name_length;
            }
            has_numbers = top.is_ok_and(|top| top.index.is_some_and(|index| index != 0));
        }
        Ok(Self {
            serial,
            has_numbers,
            has_passthrough,
            attributes,
            is_ntfs,
            name_max,
            has_nt_commands,
            has_large_files: negotiated.has_large_files(),
            is_unicode: negotiated.unicode,
            is_sequential: share.inner.link.options.in_flight_max == 1,
        })
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let can = |flag| self.attributes.contains(flag);
        let in_flight = |many: usize| if self.is_sequential { 1 } else { many };
        Capabilities {
            remote: true,
            on_network: true,
            far: false,
            page_cache: false,
            time_granularity_ns: match self.has_nt_commands {
                true => 100,
                false => 2_000_000_000,
            },
            time_granularity_known: false,
            sizes_known: true,
            case_sensitive: false,
            name_max: match self.name_max {
                0 => 255,
                most => most.min(255) as usize,
            },
            windows_names: true,
            // `names::to_wire` encodes them in UTF-16; a code page has no room for them.
            raw_names: self.is_unicode,
            file_size_max: match self.has_large_files {
                true => i64::MAX as u64,
                false => u64::from(u32::MAX),
            },
            owners: false,
            modes: false,
            xattrs: false,
            short_xattrs: false,
            security: false,
            folder_renames: true,
            replaces_open: false,
            creation_times: true,
            links_shown: can(FsAttributes::SUPPORTS_REPARSE_POINTS),
            symlinks: false,
            // Samba supports them without announcing it.
            hard_links: self.has_nt_commands && (can(FsAttributes::SUPPORTS_HARD_LINKS) || self.is_ntfs),
            special_files: false,
            sparse: false,
            stable_ids: self.has_numbers,
            journals_metadata: self.is_ntfs,
            batches_in_flight: in_flight(BATCHES_IN_FLIGHT),
            small_in_flight: in_flight(SMALL_IN_FLIGHT),
            small_puts_in_flight: 0,
            small_gets_in_flight: 0,
            blocks_in_flight: in_flight(BLOCKS_IN_FLIGHT),
            named_streams: false,
        }
    }
}
