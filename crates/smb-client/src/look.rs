//! A share, and what stands at some paths of it, in the round trip that connects to it.
//!
//! ```text
//! TREE_CONNECT · CREATE root, its volume, itself, CLOSE · CREATE path, itself, its names, CLOSE · …
//! ```
//! A compound takes session and tree over from the request before ([MS-SMB2] 3.2.4.1.4), TREE_CONNECT's too. A server
//! that sees it otherwise connects all the same and refuses the rest: then nothing is known, and whoever wants to know
//! asks again, as of any answer here that is not plain.

use ropeway_smb_proto::client::Reply;
use ropeway_smb_wire::create::{AccessMask, OplockLevel};
use ropeway_smb_wire::info::{
    DirectoryRecord, FileAllInformation, FileFsAttributeInformation, FileFsFullSizeInformation,
    FileFsVolumeInformation, Information,
};
use ropeway_smb_wire::query_info::QueryInfoResponse;
use ropeway_smb_wire::{FileAttributes, FileId, NtStatus, Text, TreeId};

use crate::directory::{FIRST_MAX, records};
use crate::{Client, OpenFile, Operation, Volume, ops};

/// What is to be seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Looks {
    /// Paths; the root is seen in any case.
    pub(crate) paths: Vec<Text>,
    /// The directory whose names are wanted: one of the paths, or the root.
    pub(crate) names_of: Option<Text>,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) volume: Option<Volume>,
    pub(crate) nodes: Vec<(Text, SeenNode)>,
    /// All names of a directory.
    pub(crate) names: Option<(Text, Vec<DirectoryRecord>)>,
}

/// What stands at a path.
#[derive(Clone, Debug)]
pub(crate) enum SeenNode {
    Missing,
    /// Anything but a reparse point.
    There(Box<FileAllInformation>),
}

/// One open of the compound: which requests of it are whose.
struct Part {
    path: Text,
    with_volume: bool,
    with_names: bool,
}

impl Looks {
    fn parts(&self) -> Vec<Part> {
        let mut paths = vec![Text::default()];
        paths.extend(self.paths.iter().filter(|path| !path.is_empty()).cloned());
        let part = |path: Text| Part {
            with_volume: path.is_empty(),
            with_names: self.names_of.as_ref() == Some(&path),
            path,
        };
        paths.into_iter().map(part).collect()
    }

    /// What follows TREE_CONNECT.
    pub(crate) fn operations(&self, client: &Client) -> Vec<Operation> {
        let transact_max = client.link().last().negotiated.max_transact;
        let mut operations = Vec::new();
        for part in self.parts() {
            part.push(&mut operations, transact_max);
        }
        operations
    }

    /// What the answers tell, those to [`operations`](Self::operations).
    pub(crate) fn seen(&self, replies: &[Reply]) -> Seen {
        let mut seen = Seen::default();
        let mut rest = replies;
        for part in self.parts() {
            let count = part.len().min(rest.len());
            let (own, after) = rest.split_at(count);
            rest = after;
            part.take(own, &mut seen);
        }
        seen
    }
}

impl Part {
    fn len(&self) -> usize {
        3 + if self.with_volume { 3 } else { 0 } + if self.with_names { 2 } else { 0 }
    }

    fn push(&self, operations: &mut Vec<Operation>, transact_max: u32) {
        let (tree, file) = (TreeId::RELATED, FileId::RELATED);
        let access = match self.with_names {
            true => AccessMask::READ_ATTRIBUTES | AccessMask::LIST_DIRECTORY,
            false => AccessMask::READ_ATTRIBUTES,
        };
        let mut open = OpenFile::metadata(access);
        open.query_on_disk_id = false;
        operations.push(ops::create(
            tree,
            &self.path,
            &open,
            OplockLevel::None,
            Vec::new(),
        ));
        operations.push(ops::query_file::<FileAllInformation>(
            tree,
            file,
            ops::query_all_len(&self.path).min(transact_max),
        ));
        if self.with_volume {
            operations.push(ops::query_volume::<FileFsVolumeInformation>(tree, file));
            operations.push(ops::query_volume::<FileFsAttributeInformation>(tree, file));
            operations.push(ops::query_volume::<FileFsFullSizeInformation>(tree, file));
        }
        if self.with_names {
            let (all, first_max) = (Text::from("*"), FIRST_MAX.min(transact_max));
            operations.push(ops::list(tree, file, &all, false, first_max));
            operations.push(ops::list(tree, file, &all, false, first_max));
        }
        operations.push(ops::close(tree, file, false));
    }

    /// Whatever does not fit is not seen.
    fn take(self, replies: &[Reply], seen: &mut Seen) {
        let [created, queried, more @ ..] = replies else {
            return;
        };
        if created.status() == NtStatus::OBJECT_NAME_NOT_FOUND {
            seen.nodes.push((self.path, SeenNode::Missing));
            return;
        }
        let all = created
            .status()
            .is_success()
            .then(|| information::<FileAllInformation>(queried))
            .flatten();
        let Some(all) = all.filter(|all| !all.basic.attributes.contains(FileAttributes::REPARSE_POINT))
        else {
            return;
        };
        let mut more = more;
        if let (true, [volume, attributes, size, rest @ ..]) = (self.with_volume, more) {
            seen.volume = volume_of(volume, attributes, size);
            more = rest;
        }
        if let (true, [first, second, ..]) = (self.with_names, more) {
            // Only a listing that is whole: the second answer says that there is no more.
            if let (Ok(Some(names)), Ok(None)) = (records(first), records(second))
                && names.bad.is_empty()
            {
                seen.names = Some((self.path.clone(), names.good));
            }
        }
        seen.nodes.push((self.path, SeenNode::There(Box::new(all))));
    }
}

fn volume_of(volume: &Reply, attributes: &Reply, size: &Reply) -> Option<Volume> {
    Some(Volume {
        volume: information(volume)?,
        attributes: information(attributes)?,
        size: information(size)?,
    })
}

fn information<I: Information>(reply: &Reply) -> Option<I> {
    if !reply.status().is_success() {
        return None;
    }
    let output = QueryInfoResponse::decode(&mut reply.body()).ok()?.output;
    I::decode(output).ok()
}
