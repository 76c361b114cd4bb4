//! Where a DFS path leads ([MS-DFSC] 2.2.2, 2.2.4, 2.2.5).
//!
//! Entries come one after another, each with its own size; the strings follow them, and entries point at them by
//! offset, several at the same one. A hostile server could therefore make a small answer into a large one: entries,
//! names and lengths have bounds.

use super::{terminated, write_terminated};
use crate::lengths::len_u16;
use crate::{Fault, Reader, Result, Text, Writer};
use bitflags::bitflags;

#[cfg(test)]
mod tests;

/// Most referrals of an answer that are read: a guess; servers send tens.
pub const REFERRALS_MAX: usize = 256;

/// Most expanded names of one referral that are read: a guess; one is a domain controller.
pub const EXPANDED_NAMES_MAX: usize = 256;

/// Most units of one path that are read: a guess, far more than any server takes.
pub const PATH_UNITS_MAX: usize = 4_096;

/// REQ_GET_DFS_REFERRAL ([MS-DFSC] 2.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DfsReferralRequest {
    /// The highest version of referrals that the client understands: 1 to 4.
    pub max_referral_level: u16,
    /// The path, beginning with one `\`; empty for the domains.
    pub request_file_name: Text,
}

impl DfsReferralRequest {
    /// Reads the IOCTL's input.
    ///
    /// # Errors
    /// Truncation, a path that is far too long.
    pub fn decode(input: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(input, "REQ_GET_DFS_REFERRAL");
        Ok(Self {
            max_referral_level: reader.u16()?,
            request_file_name: terminated(&mut reader, PATH_UNITS_MAX)?,
        })
    }

    /// Appends the IOCTL's input.
    ///
    /// # Panics
    /// If the path holds a unit of 0.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.max_referral_level);
        write_terminated(&self.request_file_name, w);
    }
}

bitflags! {
    /// `ReferralHeaderFlags` ([MS-DFSC] 2.2.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ReferralHeaderFlags: u32 {
        /// The targets can refer further.
        const REFERRAL_SERVERS = 0x0000_0001;
        /// The targets hold the files.
        const STORAGE_SERVERS = 0x0000_0002;
        /// A target that is back is to be used again.
        const TARGET_FAILBACK = 0x0000_0004;
        const _ = !0;
    }
}

bitflags! {
    /// `ReferralEntryFlags` ([MS-DFSC] 2.2.5.3, 2.2.5.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub struct ReferralEntryFlags: u16 {
        /// The entry is a name with a list of names (versions 3 and 4).
        const NAME_LIST_REFERRAL = 0x0002;
        /// The first of targets that cost the same (version 4).
        const TARGET_SET_BOUNDARY = 0x0004;
        const _ = !0;
    }
}

/// RESP_GET_DFS_REFERRAL ([MS-DFSC] 2.2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DfsReferralResponse {
    /// Bytes (not units) of the request's path that the referral replaces.
    pub path_consumed: u16,
    /// What the targets are.
    pub flags: ReferralHeaderFlags,
    /// The targets, best first.
    pub referrals: Vec<Referral>,
}

/// One entry ([MS-DFSC] 2.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Referral {
    /// The entry's form: 1 to 4.
    pub version: u16,
    /// Whether the target is a root.
    pub is_root: bool,
    /// What the entry is.
    pub flags: ReferralEntryFlags,
    /// How long it may be remembered, in seconds; version 1 does not say, so 0.
    pub time_to_live_s: u32,
    /// Where it leads.
    pub target: Target,
}

/// Where an entry leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a share or a path in it.
    Path {
        /// The DFS root or link; empty in version 1.
        dfs_path: Text,
        /// The same with names of 8 and 3 units; empty in version 1.
        dfs_alternate_path: Text,
        /// The target, `\server\share\path`.
        network_address: Text,
    },
    /// To a domain or its controllers (versions 3 and 4 with `NAME_LIST_REFERRAL`).
    Names {
        /// The domain.
        special_name: Text,
        /// Its controllers; none for a domain referral.
        expanded_names: Vec<Text>,
    },
}

/// Bytes that every entry has.
const ENTRY_COMMON_LEN: usize = 8;

/// Bytes of an entry of version 2 ([MS-DFSC] 2.2.5.2).
const ENTRY_V2_LEN: usize = 22;

/// Bytes of an entry of versions 3 and 4 that are read; 16 of GUID or padding may follow ([MS-DFSC] 2.2.5.3).
const ENTRY_V3_READ_LEN: usize = 18;

/// Bytes of an entry of versions 3 and 4 as it is written.
const ENTRY_V3_LEN: usize = 34;

impl DfsReferralResponse {
    /// Reads the IOCTL's output.
    ///
    /// # Errors
    /// Truncation, sizes that do not fit the version, versions the specification does not have, strings outside the
    /// output, too many entries, names or units.
    pub fn decode(output: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(output, "RESP_GET_DFS_REFERRAL");
        let path_consumed = reader.u16()?;
        let count = usize::from(reader.u16()?);
        let flags = ReferralHeaderFlags::from_bits_retain(reader.u32()?);
        if count > REFERRALS_MAX {
            return Err(reader.fault(Fault::Chain));
        }
        let referrals = (0..count)
            .map(|_| Referral::decode(&mut reader))
            .collect::<Result<_>>()?;
        Ok(Self {
            path_consumed,
            flags,
            referrals,
        })
    }

    /// Appends the IOCTL's output: header, entries, strings.
    ///
    /// # Panics
    /// If a version is not 1 to 4 or has a target that it cannot express, a string holds a unit of 0, or a string lies
    /// beyond what 16 bits can point at.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(self.path_consumed);
        w.u16(len_u16(self.referrals.len()));
        w.u32(self.flags.bits());
        let starts: Vec<usize> = self
            .referrals
            .iter()
            .map(|referral| {
                let start = w.position();
                referral.encode_entry(w);
                start
            })
            .collect();
        for (referral, start) in self.referrals.iter().zip(starts) {
            referral.encode_strings(start, w);
        }
    }
}

impl Referral {
    /// Whether a version's entry has places for a list of names.
    fn is_name_list(version: u16, flags: ReferralEntryFlags) -> bool {
        version >= 3 && flags.contains(ReferralEntryFlags::NAME_LIST_REFERRAL)
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let start = reader.position();
        let version = reader.u16()?;
        let size = usize::from(reader.u16()?);
        let is_root = reader.u16()? & 1 != 0;
        let flags = ReferralEntryFlags::from_bits_retain(reader.u16()?);
        let size_min = match version {
            1 => ENTRY_COMMON_LEN,
            2 => ENTRY_V2_LEN,
            3 | 4 => ENTRY_V3_READ_LEN,
            _ => return Err(reader.fault(Fault::Value)),
        };
        // [MS-DFSC] 2.2.5: the size leads to the next entry.
        if size < size_min {
            return Err(reader.fault(Fault::Chain));
        }
        let mut entry = *reader;
        if version == 2 {
            // Proximity: ignored.
            entry.skip(4)?;
        }
        let time_to_live_s = if version == 1 { 0 } else { entry.u32()? };
        let target = if version == 1 {
            Target::Path {
                dfs_path: Text::default(),
                dfs_alternate_path: Text::default(),
                network_address: terminated(&mut entry, PATH_UNITS_MAX)?,
            }
        } else if Self::is_name_list(version, flags) {
            Self::names(&mut entry, start, size_min)?
        } else {
            let offsets = [entry.u16()?, entry.u16()?, entry.u16()?];
            Target::Path {
                dfs_path: string(&entry, start, offsets[0], size_min)?,
                dfs_alternate_path: string(&entry, start, offsets[1], size_min)?,
                network_address: string(&entry, start, offsets[2], size_min)?,
            }
        };
        reader.seek(start + size)?;
        Ok(Self {
            version,
            is_root,
            flags,
            time_to_live_s,
            target,
        })
    }

    fn names(entry: &mut Reader<'_>, start: usize, size_min: usize) -> Result<Target> {
        let special_offset = entry.u16()?;
        let count = usize::from(entry.u16()?);
        let expanded_offset = entry.u16()?;
        let special_name = string(entry, start, special_offset, size_min)?;
        let mut expanded_names = Vec::new();
        if count > EXPANDED_NAMES_MAX {
            return Err(entry.fault(Fault::Chain));
        }
        if count > 0 {
            let mut names = string_reader(entry, start, expanded_offset, size_min)?;
            for _ in 0..count {
                expanded_names.push(terminated(&mut names, PATH_UNITS_MAX)?);
            }
        }
        Ok(Target::Names {
            special_name,
            expanded_names,
        })
    }

    /// Appends the entry; offsets stay 0.
    fn encode_entry(&self, w: &mut Writer<'_>) {
        let start = w.position();
        let is_names = matches!(self.target, Target::Names { .. });
        assert_eq!(
            is_names,
            Self::is_name_list(self.version, self.flags),
            "version and flags tell the form"
        );
        w.u16(self.version);
        w.u16(0);
        w.u16(u16::from(self.is_root));
        w.u16(self.flags.bits());
        match (self.version, &self.target) {
            (1, Target::Path { network_address, .. }) => write_terminated(network_address, w),
            (2, _) => {
                w.u32(0);
                w.u32(self.time_to_live_s);
                w.zeros(6);
            }
            (3 | 4, _) => {
                w.u32(self.time_to_live_s);
                w.zeros(start + ENTRY_V3_LEN - w.position());
            }
            _ => panic!("referrals have versions 1 to 4"),
        }
        w.patch_u16(start + 2, len_u16(w.position() - start));
    }

    /// Appends the strings of the entry at `start` and patches their offsets in.
    fn encode_strings(&self, start: usize, w: &mut Writer<'_>) {
        let offsets = start + if self.version == 2 { 16 } else { 12 };
        match &self.target {
            _ if self.version == 1 => {}
            Target::Path {
                dfs_path,
                dfs_alternate_path,
                network_address,
            } => {
                for (number, text) in [dfs_path, dfs_alternate_path, network_address]
                    .into_iter()
                    .enumerate()
                {
                    w.patch_u16(offsets + 2 * number, len_u16(w.position() - start));
                    write_terminated(text, w);
                }
            }
            Target::Names {
                special_name,
                expanded_names,
            } => {
                w.patch_u16(offsets, len_u16(w.position() - start));
                write_terminated(special_name, w);
                if !expanded_names.is_empty() {
                    w.patch_u16(offsets + 2, len_u16(expanded_names.len()));
                    w.patch_u16(offsets + 4, len_u16(w.position() - start));
                    expanded_names.iter().for_each(|name| write_terminated(name, w));
                }
            }
        }
    }
}

/// The string at `offset` of the entry at `start`; empty if the offset is 0, which some servers leave.
fn string(entry: &Reader<'_>, start: usize, offset: u16, size_min: usize) -> Result<Text> {
    if offset == 0 {
        return Ok(Text::default());
    }
    terminated(
        &mut string_reader(entry, start, offset, size_min)?,
        PATH_UNITS_MAX,
    )
}

/// A reader at `offset` of the entry at `start`, behind the entry's fixed part.
fn string_reader<'a>(entry: &Reader<'a>, start: usize, offset: u16, size_min: usize) -> Result<Reader<'a>> {
    let offset = usize::from(offset);
    if offset < size_min {
        return Err(entry.fault(Fault::Bounds));
    }
    let mut reader = *entry;
    reader.seek(start + offset)?;
    Ok(reader)
}
