//! What a share keeps beside content, times and attributes, all as extended attributes: streams, EAs, and if asked for the
//! security descriptor.
//!
//! What is there is asked in one round trip; setting costs one more for each stream, one for all EAs, one for the
//! descriptor. The descriptor is set last of all, since it may forbid the rest.

use std::sync::atomic::Ordering;

use ropeway_smb_wire::create::AccessMask;
use ropeway_smb_wire::info::{FileFullEaInformation, FileStreamInformation, FullEa};
use ropeway_smb_wire::upcase;
use ropeway_smb_wire::{FileId, NtStatus, Text, TreeId};
use ropeway_vfs::{ErrorKind, Loss, Op, RelPath, Result, SDDL_XATTR, Xattr};

use super::compound::{self, Compound};
use super::errors::found;
use super::streams::{self, LIST_MAX, STREAM_MAX};
use super::{Inner, eas, security};
use crate::tree::check;
use crate::{Error as ClientError, OpenFile, Operation, Reply, ops};

/// Room for a file's EAs: NTFS allows 64 KiB of them in all.
const EAS_MAX: u32 = 64 << 10;
/// Room for more of them, on servers that have other bounds.
const EAS_MANY_MAX: u32 = 1 << 20;
/// EAs set at once: one credit's worth ([MS-SMB2] 3.1.5.2), with the request's head.
const EAS_PORTION: usize = 60 << 10;

/// What can be asked of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Security,
    Streams,
    Eas,
}

/// What a node has.
#[derive(Default)]
struct About {
    /// Name, name as an extended attribute, size.
    streams: Vec<(Text, Vec<u8>, u64)>,
    eas: Vec<Xattr>,
    /// Empty if it may not be read.
    sddl: Option<String>,
}

impl Inner {
    /// All that is shown as extended attributes, sorted by name.
    pub(super) async fn xattrs(&self, path: &RelPath) -> Result<Vec<Xattr>> {
        let text = self.base.text(Op::Xattr, path)?;
        let parts = self.parts(self.options.acls);
        if parts.is_empty() {
            // Nothing else asks whether the node is there.
            self.stat(Op::Xattr, path).await?;
        }
        let about = self
            .refined(Op::Xattr, path, self.about(&text, &parts).await)
            .await?;
        let mut xattrs = about.eas;
        for (name, xattr, size) in about.streams {
            if size > STREAM_MAX {
                let sentence = "it has an alternate data stream that is too large to carry";
                return Err(found(Op::Xattr, path, ErrorKind::Unsupported, sentence));
            }
            let read = self.read_stream(&text, &name, size).await;
            let mut value = self.refined(Op::Xattr, path, read).await?;
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

    /// What may be asked beside a file's content: reading it takes no further right.
    pub(super) fn parts_beside(&self) -> Vec<Part> {
        match self.options.acls {
            true => Vec::new(),
            false => self.parts(false),
        }
    }

    fn parts(&self, security: bool) -> Vec<Part> {
        let parts = [
            (security, Part::Security),
            (self.has_streams, Part::Streams),
            (self.capabilities.short_xattrs, Part::Eas),
        ];
        let wanted = parts.into_iter().filter(|(is_wanted, _)| *is_wanted);
        wanted.map(|(_, part)| part).collect()
    }

    async fn about(&self, text: &Text, parts: &[Part]) -> crate::Result<About> {
        let mut about = About::default();
        let mut parts = parts;
        let without: Vec<Part>;
        let mut replies = match self.ask(text, parts, EAS_MAX).await {
            // Its owner may always read it; others may be denied that alone.
            Err(error) if parts.contains(&Part::Security) && is_denied(&error) => {
                without = self.parts(false);
                parts = &without;
                about.sddl = Some(String::new());
                self.ask(text, parts, EAS_MAX).await?
            }
            replies => replies?,
        };
        while replies.len() < parts.len() {
            // The server takes no compounds, and stopped at what it did not like.
            let more = self.ask(text, &parts[replies.len()..], EAS_MAX).await?;
            if more.is_empty() {
                return Err(ClientError::PeerMisbehaved("an answer is missing".to_owned()));
            }
            replies.extend(more);
        }
        for (part, reply) in parts.iter().zip(&replies) {
            match part {
                Part::Security => about.sddl = sddl(reply)?,
                Part::Streams => about.streams = streams_of(reply)?,
                Part::Eas => about.eas = self.eas_of(text, reply).await?,
            }
        }
        Ok(about)
    }

    /// What is shown as extended attributes, if the answers tell all of it: no streams, and EAs that fitted.
    pub(super) fn plain_xattrs(parts: &[Part], replies: &[Reply]) -> Option<Vec<Xattr>> {
        if parts.is_empty() || parts.len() != replies.len() {
            return None;
        }
        let mut xattrs = Vec::new();
        for (part, reply) in parts.iter().zip(replies) {
            match (part, reply.status()) {
                (Part::Security, _) => return None,
                (Part::Streams, _) if streams_of(reply).ok()?.is_empty() => {}
                (Part::Streams, _) => return None,
                (Part::Eas, NtStatus::BUFFER_OVERFLOW) => return None,
                (Part::Eas, _) => xattrs = plain_eas(reply).ok()?,
            }
        }
        xattrs.sort();
        xattrs.dedup_by(|one, other| one.name == other.name);
        Some(xattrs)
    }

    async fn ask(&self, text: &Text, parts: &[Part], eas_max: u32) -> crate::Result<Vec<Reply>> {
        if parts.is_empty() {
            return Ok(Vec::new());
        }
        let access = parts
            .iter()
            .fold(AccessMask::READ_ATTRIBUTES, |access, part| match part {
                Part::Security => access | AccessMask::READ_CONTROL,
                Part::Streams => access,
                Part::Eas => access | AccessMask::READ_EA,
            });
        let open = OpenFile::metadata(access);
        let question = Compound::open("read attributes", text, &open);
        let question = parts.iter().fold(question, |question, part| match part {
            Part::Eas => question.query::<FileFullEaInformation>(eas_max),
            part => {
                let part = *part;
                question.and(move |tree, file| part.question(tree, file))
            }
        });
        question.run_all(&self.share).await
    }

    async fn eas_of(&self, text: &Text, reply: &Reply) -> crate::Result<Vec<Xattr>> {
        let more;
        let reply = match reply.status() {
            NtStatus::BUFFER_OVERFLOW | NtStatus::BUFFER_TOO_SMALL | NtStatus::INFO_LENGTH_MISMATCH => {
                let room = EAS_MANY_MAX.min(self.share.limits().transact_max);
                more = self.ask(text, &[Part::Eas], room).await?;
                more.first()
                    .ok_or_else(|| ClientError::PeerMisbehaved("an answer is missing".to_owned()))?
            }
            _ => reply,
        };
        plain_eas(reply)
    }

    /// Sets the whole new set, but for the security descriptor, which it gives back: that comes last. What cannot be kept
    /// is added to the losses.
    pub(super) async fn set_xattrs<'a>(
        &self,
        path: &RelPath,
        wanted: &'a [Xattr],
        is_new: bool,
        losses: &mut Vec<Loss>,
    ) -> Result<Option<&'a [u8]>> {
        let text = self.base.text(Op::Xattr, path)?;
        let there = match is_new {
            true => About::default(),
            false => {
                let there = self.about(&text, &self.parts(false)).await;
                self.refined(Op::Xattr, path, there).await?
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
                self.refined(Op::Xattr, path, written).await?;
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
                self.refined(Op::Xattr, path, removed).await?;
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
            replies => self.refined(Op::Xattr, path, replies).await?,
        };
        for (at, portion) in portions.into_iter().enumerate() {
            match replies.get(at).map(Reply::status) {
                Some(status) if status.is_success() => {}
                Some(NtStatus::EAS_NOT_SUPPORTED) => {
                    self.eas_refused.store(true, Ordering::Relaxed);
                    losses.push(Loss::Xattr);
                }
                // One by one: the server names nobody.
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
                replies => self.refined(Op::Xattr, path, replies).await?,
            };
            match replies.first().map(Reply::status) {
                Some(status) if status.is_success() => {}
                Some(NtStatus::NONEXISTENT_EA_ENTRY) if is_deletion => {}
                Some(NtStatus::DISK_FULL) => {
                    let full = ClientError::refused("set extended attributes", NtStatus::DISK_FULL);
                    return self.refined(Op::Xattr, path, Err(full)).await;
                }
                _ => losses.push(Loss::Xattr),
            }
        }
        Ok(())
    }

    async fn send_eas(&self, text: &Text, portions: &[FileFullEaInformation]) -> crate::Result<Vec<Reply>> {
        let open = OpenFile::metadata(AccessMask::WRITE_EA);
        let set = Compound::open("set extended attributes", text, &open);
        let set = portions.iter().fold(set, |set, portion| set.set(portion));
        set.run_all(&self.share).await
    }

    /// Whether EAs are worth trying: the share may have them, and has not said that it does not.
    pub(super) fn may_set_eas(&self) -> bool {
        self.capabilities.short_xattrs && !self.eas_refused.load(Ordering::Relaxed)
    }

    /// Whether an extended attribute takes requests of its own to set.
    pub(super) fn takes(&self, xattr: &Xattr) -> bool {
        (self.has_streams && streams::stream_name(&xattr.name).is_some())
            || (self.options.acls && xattr.name == SDDL_XATTR)
            || (self.may_set_eas() && eas::fits(xattr))
    }
}

impl Part {
    /// The request for it on an open file.
    pub(super) fn question(self, tree: TreeId, file: FileId) -> Operation {
        match self {
            Self::Security => ops::query_security(tree, file, security::PARTS, security::DESCRIPTOR_MAX),
            Self::Streams => ops::query_file::<FileStreamInformation>(tree, file, LIST_MAX),
            Self::Eas => ops::query_file::<FileFullEaInformation>(tree, file, EAS_MAX),
        }
    }
}

/// EAs of an answer that holds all of them.
fn plain_eas(reply: &Reply) -> crate::Result<Vec<Xattr>> {
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

/// Whether a server does not know what it was asked for, here.
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

fn sddl(reply: &Reply) -> crate::Result<Option<String>> {
    match reply.status() {
        NtStatus::ACCESS_DENIED => Ok(Some(String::new())),
        status if is_unknown(status) => Ok(None),
        _ => {
            check("read the security descriptor", reply)?;
            security::to_text(compound::output(reply)?).map(Some)
        }
    }
}

fn streams_of(reply: &Reply) -> crate::Result<Vec<(Text, Vec<u8>, u64)>> {
    // A folder without any, on some servers.
    if is_unknown(reply.status()) {
        return Ok(Vec::new());
    }
    check("list streams", reply)?;
    Ok(streams::named(compound::information(reply)?).collect())
}
