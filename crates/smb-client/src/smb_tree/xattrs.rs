//! The extended attributes of a tree: alternate data streams, EAs and, if requested, the security
//! descriptor.
//!
//! Reading the list takes one round trip. Setting takes one more for each stream, one for all EAs,
//! one for the descriptor. The descriptor is set last, since it may forbid the rest.

use std::sync::atomic::Ordering;

use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileFullEaInformation, FileStreamInformation, FullEa};
use ropeway_smb_wire::{FileId, NtStatus, Text, TreeId, upcase};
use ropeway_vfs::{ErrorKind, Loss, Op, RelPath, Result, SDDL_XATTR, Xattr};

use super::compound::{self, Compound};
use super::errors::with_message;
use super::inner::Inner;
use super::streams::{self, LIST_MAX, STREAM_MAX};
use super::{eas, security};
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::open::OpenFile;
use crate::ops;
use crate::replies::check;

/// Maximum bytes of a file's EAs: NTFS allows 64 KiB in all.
const EAS_MAX: u32 = 64 << 10;
/// Maximum bytes of a file's EAs on servers with other bounds.
const EAS_MANY_MAX: u32 = 1 << 20;
/// Maximum bytes of EAs in one request: one credit ([MS-SMB2] 3.1.5.2), less the request's header.
const EAS_PORTION: usize = 60 << 10;

/// A group of attributes that one request queries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributePart {
    Security,
    Streams,
    Eas,
}

/// The attributes of a node.
#[derive(Default)]
pub(crate) struct ExtraAttributes {
    /// Name, name as an extended attribute, size in bytes.
    streams: Vec<(Text, Vec<u8>, u64)>,
    pub(crate) eas: Vec<Xattr>,
    /// Empty if access is denied.
    sddl: Option<String>,
}

impl Inner {
    /// Returns all extended attributes, sorted by name.
    pub(crate) async fn xattrs(&self, path: &RelPath) -> Result<Vec<Xattr>> {
        let text = self.base.text(Op::Xattr, path)?;
        let parts = self.parts(self.options.acls);
        if parts.is_empty() {
            // No other request checks that the node exists.
            self.stat(Op::Xattr, path).await?;
        }
        let about = self
            .map_error(Op::Xattr, path, self.about(&text, &parts).await)
            .await?;
        let mut xattrs = about.eas;
        for (name, xattr, size) in about.streams {
            if size > STREAM_MAX {
                let sentence = "it has an alternate data stream that is too large to carry";
                return Err(with_message(Op::Xattr, path, ErrorKind::Unsupported, sentence));
            }
            let read = self.read_stream(&text, &name, size).await;
            let mut value = self.map_error(Op::Xattr, path, read).await?;
            value.push(0);
            xattrs.push(Xattr { name: xattr, value });
        }
        xattrs.extend(about.sddl.map(|sddl| Xattr {
            name: SDDL_XATTR.to_vec(),
            value: sddl.into_bytes(),
        }));
        xattrs.sort();
        xattrs.dedup_by(|one, other| one.name == other.name);
        Ok(xattrs)
    }

    /// Returns the groups that can be queried with the right to read a file's content.
    pub(crate) fn parts_without_security(&self) -> Vec<AttributePart> {
        match self.options.acls {
            true => Vec::new(),
            false => self.parts(false),
        }
    }

    fn parts(&self, security: bool) -> Vec<AttributePart> {
        let parts = [
            (security, AttributePart::Security),
            (self.has_streams, AttributePart::Streams),
            (self.capabilities.short_xattrs, AttributePart::Eas),
        ];
        let wanted = parts.into_iter().filter(|(is_wanted, _)| *is_wanted);
        wanted.map(|(_, part)| part).collect()
    }

    pub(crate) async fn about(&self, text: &Text, parts: &[AttributePart]) -> ClientResult<ExtraAttributes> {
        let mut about = ExtraAttributes::default();
        let mut parts = parts;
        let without: Vec<AttributePart>;
        let mut replies = match self.ask(text, parts, EAS_MAX).await {
            // The owner may always read the descriptor; others may be denied only that.
            Err(error) if parts.contains(&AttributePart::Security) && is_denied(&error) => {
                without = self.parts(false);
                parts = &without;
                about.sddl = Some(String::new());
                self.ask(text, parts, EAS_MAX).await?
            }
            replies => replies?,
        };
        while replies.len() < parts.len() {
            // The server takes no compounds, and the single requests stopped at the first failure.
            let more = self.ask(text, &parts[replies.len()..], EAS_MAX).await?;
            if more.is_empty() {
                return Err(ClientError::PeerMisbehaved("a reply is missing".to_owned()));
            }
            replies.extend(more);
        }
        for (part, reply) in parts.iter().zip(&replies) {
            match part {
                AttributePart::Security => about.sddl = sddl(reply)?,
                AttributePart::Streams => about.streams = streams_of(reply)?,
                AttributePart::Eas => about.eas = self.eas_of(text, reply).await?,
            }
        }
        Ok(about)
    }

    /// Returns the extended attributes if the replies contain all of them: no streams, and EAs that
    /// fitted.
    pub(crate) fn plain_xattrs(parts: &[AttributePart], replies: &[Reply]) -> Option<Vec<Xattr>> {
        if parts.is_empty() || parts.len() != replies.len() {
            return None;
        }
        let mut xattrs = Vec::new();
        for (part, reply) in parts.iter().zip(replies) {
            match (part, reply.status()) {
                (AttributePart::Security, _) => return None,
                (AttributePart::Streams, _) if streams_of(reply).ok()?.is_empty() => {}
                (AttributePart::Streams, _) => return None,
                (AttributePart::Eas, NtStatus::BUFFER_OVERFLOW) => return None,
                (AttributePart::Eas, _) => xattrs = plain_eas(reply).ok()?,
            }
        }
        xattrs.sort();
        xattrs.dedup_by(|one, other| one.name == other.name);
        Some(xattrs)
    }

    async fn ask(&self, text: &Text, parts: &[AttributePart], eas_max: u32) -> ClientResult<Vec<Reply>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let access = parts
            .iter()
            .fold(AccessMask::READ_ATTRIBUTES, |access, part| match part {
                AttributePart::Security => access | AccessMask::READ_CONTROL,
                AttributePart::Streams => access,
                AttributePart::Eas => access | AccessMask::READ_EA,
            });
        let open = OpenFile::metadata(access);
        let request = Compound::open("read attributes", text, &open);
        let request = parts.iter().fold(request, |request, part| match part {
            AttributePart::Eas => request.query::<FileFullEaInformation>(eas_max),
            part => {
                let part = *part;
                request.and(move |tree, file| part.request(tree, file))
            }
        });
        request.run_all(&self.share).await
    }

    async fn eas_of(&self, text: &Text, reply: &Reply) -> ClientResult<Vec<Xattr>> {
        let more;
        let reply = match reply.status() {
            NtStatus::BUFFER_OVERFLOW | NtStatus::BUFFER_TOO_SMALL | NtStatus::INFO_LENGTH_MISMATCH => {
                let room = EAS_MANY_MAX.min(self.share.limits().transact_max);
                more = self.ask(text, &[AttributePart::Eas], room).await?;
                more.first()
                    .ok_or_else(|| ClientError::PeerMisbehaved("a reply is missing".to_owned()))?
            }
            _ => reply,
        };
        plain_eas(reply)
    }

    /// Sets the complete new set except the security descriptor, which it returns because that is
    /// set last. Adds what cannot be stored to the losses.
    pub(crate) async fn set_xattrs<'a>(
        &self,
        path: &RelPath,
        wanted: &'a [Xattr],
        is_new: bool,
        losses: &mut Vec<Loss>,
    ) -> Result<Option<&'a [u8]>> {
        let text = self.base.text(Op::Xattr, path)?;
        let there = match is_new {
            true => ExtraAttributes::default(),
            false => {
                let there = self.about(&text, &self.parts(false)).await;
                self.map_error(Op::Xattr, path, there).await?
            }
        };
        let mut kept = Vec::new();
        let mut others = Vec::new();
        let mut sddl = None;
        for xattr in wanted {
            if self.has_streams
                && let Some(stream) = streams::stream_name(&xattr.name)
            {
                let value = xattr.value.strip_suffix(&[0]).unwrap_or(&xattr.value);
                let written = self.write_stream(&text, &stream, value).await;
                self.map_error(Op::Xattr, path, written).await?;
                kept.push(upcase::fold(&stream));
            } else if self.options.acls && xattr.name == SDDL_XATTR {
                sddl = Some(xattr.value.as_slice());
            } else {
                others.push(xattr);
            }
        }
        for (name, ..) in there.streams {
            if !kept.contains(&upcase::fold(&name)) {
                let removed = self.remove_stream(&text, &name).await;
                self.map_error(Op::Xattr, path, removed).await?;
            }
        }
        self.set_eas(path, &text, &others, &there.eas, losses).await?;
        Ok(sddl)
    }

    async fn set_eas(
        &self,
        path: &RelPath,
        text: &Text,
        wanted: &[&Xattr],
        there: &[Xattr],
        losses: &mut Vec<Loss>,
    ) -> Result<()> {
        if !self.may_set_eas() {
            losses.extend(wanted.iter().map(|xattr| Loss::of_xattr(&xattr.name)));
            return Ok(());
        }
        let there: Vec<Vec<u8>> = there.iter().map(|xattr| xattr.name.clone()).collect();
        let change = eas::change(wanted, &there, losses);
        if change.is_empty() {
            return Ok(());
        }
        let portions = eas::portions(change, EAS_PORTION);
        let replies = self.send_eas(text, &portions).await;
        let replies = match replies {
            Err(error) if is_denied(&error) => Vec::new(),
            replies => self.map_error(Op::Xattr, path, replies).await?,
        };
        for (at, portion) in portions.into_iter().enumerate() {
            match replies.get(at).map(Reply::status) {
                Some(status) if status.is_success() => {}
                Some(NtStatus::EAS_NOT_SUPPORTED) => {
                    self.eas_refused.store(true, Ordering::Relaxed);
                    losses.push(Loss::Xattr);
                }
                // One by one: the server does not say which EA it refused.
                _ => {
                    self.set_single_eas(path, text, portion.attributes, losses)
                        .await?
                }
            }
        }
        Ok(())
    }

    async fn set_single_eas(
        &self,
        path: &RelPath,
        text: &Text,
        eas: Vec<FullEa>,
        losses: &mut Vec<Loss>,
    ) -> Result<()> {
        for ea in eas {
            let is_deletion = ea.value.is_empty();
            let single = [FileFullEaInformation { attributes: vec![ea] }];
            let replies = match self.send_eas(text, &single).await {
                Err(error) if is_denied(&error) => Vec::new(),
                replies => self.map_error(Op::Xattr, path, replies).await?,
            };
            match replies.first().map(Reply::status) {
                Some(status) if status.is_success() => {}
                Some(NtStatus::NONEXISTENT_EA_ENTRY) if is_deletion => {}
                Some(NtStatus::DISK_FULL) => {
                    let full = ClientError::refused("set extended attributes", NtStatus::DISK_FULL);
                    return self.map_error(Op::Xattr, path, Err(full)).await;
                }
                _ => losses.push(Loss::Xattr),
            }
        }
        Ok(())
    }

    pub(crate) async fn send_eas(
        &self,
        text: &Text,
        portions: &[FileFullEaInformation],
    ) -> ClientResult<Vec<Reply>> {
        let open = OpenFile::metadata(AccessMask::WRITE_EA);
        let set = Compound::open("set extended attributes", text, &open);
        let set = portions.iter().fold(set, |set, portion| set.set(portion));
        set.run_all(&self.share).await
    }

    /// Returns whether to try EAs: the share announced them and has not refused them.
    pub(crate) fn may_set_eas(&self) -> bool {
        self.capabilities.short_xattrs && !self.eas_refused.load(Ordering::Relaxed)
    }

    /// Returns whether setting an extended attribute takes further requests.
    pub(crate) fn takes(&self, xattr: &Xattr) -> bool {
        (self.has_streams && streams::stream_name(&xattr.name).is_some())
            || (self.options.acls && xattr.name == SDDL_XATTR)
            || (self.may_set_eas() && eas::fits(xattr))
    }
}

impl AttributePart {
    /// Returns the query for this group on an open file.
    pub(crate) fn request(self, tree: TreeId, file: FileId) -> Operation {
        match self {
            Self::Security => ops::query_security(tree, file, security::PARTS, security::DESCRIPTOR_MAX),
            Self::Streams => ops::query_file::<FileStreamInformation>(tree, file, LIST_MAX),
            Self::Eas => ops::query_file::<FileFullEaInformation>(tree, file, EAS_MAX),
        }
    }
}

/// Decodes the EAs of a reply that holds all of them.
fn plain_eas(reply: &Reply) -> ClientResult<Vec<Xattr>> {
    match reply.status() {
        NtStatus::NO_EAS_ON_FILE | NtStatus::EAS_NOT_SUPPORTED => Ok(Vec::new()),
        status if is_unknown(status) => Ok(Vec::new()),
        _ => {
            check("read extended attributes", reply)?;
            if compound::output(reply)?.is_empty() {
                return Ok(Vec::new());
            }
            Ok(eas::from_share(compound::information(reply)?).collect())
        }
    }
}

fn is_denied(error: &ClientError) -> bool {
    error.status() == Some(NtStatus::ACCESS_DENIED)
}

/// Returns whether the server does not support the query here.
fn is_unknown(status: NtStatus) -> bool {
    matches!(
        status,
        NtStatus::NOT_SUPPORTED
            | NtStatus::NOT_IMPLEMENTED
            | NtStatus::INVALID_INFO_CLASS
            | NtStatus::INVALID_PARAMETER
            | NtStatus::INVALID_DEVICE_REQUEST
    )
}

fn sddl(reply: &Reply) -> ClientResult<Option<String>> {
    match reply.status() {
        NtStatus::ACCESS_DENIED => Ok(Some(String::new())),
        status if is_unknown(status) => Ok(None),
        _ => {
            check("read the security descriptor", reply)?;
            security::to_text(compound::output(reply)?).map(Some)
        }
    }
}

pub(crate) fn streams_of(reply: &Reply) -> ClientResult<Vec<(Text, Vec<u8>, u64)>> {
    // Some servers reply this for a folder without streams.
    if is_unknown(reply.status()) {
        return Ok(Vec::new());
    }
    check("list streams", reply)?;
    Ok(streams::named(compound::information(reply)?).collect())
}
