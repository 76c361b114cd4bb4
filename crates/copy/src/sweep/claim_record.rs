//! What a claim says: whose it is, and the folders in which its job made temporary names.
//!
//! Records end with NUL. The first is JSON, the others are paths relative to the folder of the
//! claim. A torn last record counts as absent. So whoever finds the claim of a dead job knows where
//! to look without the journal of that job.

use ropeway_plan::sweep::ClaimOwner;
use ropeway_vfs::{ClaimKind, RelPath};
use serde::{Deserialize, Serialize};

/// Version of the format. A claim of another version is left alone.
const VERSION: u32 = 1;

/// Largest number of bytes read of a claim: more than 100,000 folders.
pub(crate) const BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    ropeway: u32,
    /// [`ClaimKind::as_str`].
    kind: String,
    /// Key of the job, if it keeps a journal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) job: Option<String>,
    /// Identity of the folder that holds the journal: a hash of machine and path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) state: Option<String>,
    /// Whether the job does not wait until the claim names a folder. Such a job may die with
    /// temporary names in other folders as well. (The name on disk is that of an older version.)
    #[serde(rename = "aside", default, skip_serializing_if = "std::ops::Not::not")]
    unwaited: bool,
    /// Hash of the boot in which it was made. A power cut may have changed a claim of another boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) boot: Option<String>,
}

impl Header {
    pub(crate) fn new(
        kind: ClaimKind,
        (job, state): (Option<String>, Option<String>),
        unwaited: bool,
    ) -> Self {
        Self {
            ropeway: VERSION,
            kind: kind.as_str().to_owned(),
            job,
            state,
            unwaited,
            boot: None,
        }
    }

    /// Sets the boot in which it was made.
    #[must_use]
    pub(crate) fn in_boot(mut self, boot_id: &str) -> Self {
        self.boot = boot_of(boot_id);
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // There are only strings, and JSON has no NUL.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        bytes.push(0);
        bytes
    }

    /// Whether somebody who holds a claim of this kind can know that it is abandoned.
    pub(crate) fn is_held_by(&self, kind: ClaimKind) -> bool {
        self.kind == kind.as_str()
    }
}

/// Returns the hash of a boot for a claim. `None` if the boot is not known.
pub(crate) fn boot_of(boot_id: &str) -> Option<String> {
    (!boot_id.is_empty()).then(|| blake3::hash(boot_id.as_bytes()).to_hex()[..16].to_owned())
}

/// Encodes one place for a claim.
pub(crate) fn encode_place(place: &RelPath) -> Vec<u8> {
    [place.as_bytes(), b"\0"].concat()
}

/// The content of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClaimRecord {
    /// `None` if it is not a claim of this program and version.
    pub(crate) header: Option<Header>,
    /// Whether not even the header is complete: a power cut left a part of it.
    pub(crate) is_torn: bool,
    pub(crate) places: Vec<RelPath>,
}

impl ClaimRecord {
    /// Whether temporary names may be in folders that the claim does not name. An empty claim on a
    /// share was made by a job that died before it heard of it. What a claim said at a power cut
    /// may be lost.
    pub(crate) fn is_partial(&self, kind: ClaimKind, boot_id: &str) -> bool {
        match &self.header {
            Some(header) => header.unwaited || (kind != ClaimKind::Share && header.boot != boot_of(boot_id)),
            None => kind == ClaimKind::Share || self.is_torn,
        }
    }

    /// Returns whose claim it is; `None` if it does not say.
    pub(crate) fn owner(&self) -> Option<ClaimOwner<'_>> {
        self.header.as_ref().map(|header| ClaimOwner {
            job: header.job.as_deref(),
            state: header.state.as_deref(),
        })
    }

    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let whole = bytes.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1);
        let mut records = bytes[..whole].split_inclusive(|byte| *byte == 0);
        let plain = |record: &[u8]| record[..record.len() - 1].to_vec();
        let header = records.next().map(plain);
        let is_json = |json: &Vec<u8>| serde_json::from_slice::<serde_json::Value>(json).is_ok();
        let is_torn = !header.as_ref().is_some_and(is_json);
        let header = header.and_then(|json| serde_json::from_slice::<Header>(&json).ok());
        let Some(header) = header.filter(|header| header.ropeway == VERSION) else {
            return Self {
                is_torn,
                ..Self::default()
            };
        };
        let places = records.map(plain).filter_map(|place| match place.is_empty() {
            true => Some(RelPath::root()),
            false => RelPath::parse(&place),
        });
        Self {
            places: places.collect(),
            header: Some(header),
            is_torn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> Header {
        Header::new(ClaimKind::Local, (Some("0123".into()), Some("ab".into())), false)
    }

    #[test]
    fn what_is_recorded_reads_back_but_for_a_torn_end() {
        let path = RelPath::parse(b"a/b\n\xff").unwrap();
        let mut bytes = header().encode();
        bytes.extend(encode_place(&RelPath::root()));
        bytes.extend(encode_place(&path));
        bytes.extend(b"torn");
        let record = ClaimRecord::parse(&bytes);
        assert_eq!(record.header, Some(header()));
        assert_eq!(record.places, [RelPath::root(), path]);
        assert!(record.header.unwrap().is_held_by(ClaimKind::Local));
    }

    #[test]
    fn who_did_not_wait_tells_of_a_part_only() {
        let record = |aside| ClaimRecord::parse(&Header::new(ClaimKind::Share, (None, None), aside).encode());
        assert!(record(true).is_partial(ClaimKind::Share, ""));
        assert!(!record(false).is_partial(ClaimKind::Share, ""));
        assert!(
            ClaimRecord::default().is_partial(ClaimKind::Share, ""),
            "not even begun"
        );
        assert!(
            !ClaimRecord::default().is_partial(ClaimKind::Local, ""),
            "waited for"
        );
    }

    #[test]
    fn what_a_power_cut_left_of_a_claim_tells_of_a_part_only() {
        let header = Header::new(ClaimKind::Local, (None, None), false).in_boot("one");
        let record = ClaimRecord::parse(&header.encode());
        assert!(!record.is_partial(ClaimKind::Local, "one"));
        assert!(record.is_partial(ClaimKind::Local, "two"));
        for left in [&b"{\"ropeway\":1,"[..], &[0; 40]] {
            let record = ClaimRecord::parse(left);
            assert!(record.is_torn && record.is_partial(ClaimKind::Local, "one"));
        }
        assert!(
            !ClaimRecord::parse(b"{\"ropeway\":9}\0").is_torn,
            "another version"
        );
    }

    #[test]
    fn nothing_leads_out_of_the_claims_folder() {
        let mut bytes = header().encode();
        bytes.extend(b"../x\0/etc\0a//b\0ok\0");
        assert_eq!(
            ClaimRecord::parse(&bytes).places,
            [RelPath::parse(b"ok").unwrap()]
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            let record = ClaimRecord::parse(&bytes);
            prop_assert!(record.header.is_some() || record.places.is_empty());
        }
    }
}
