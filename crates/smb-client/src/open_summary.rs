//! Connects to a share and reads a summary of some of its paths in the same round trip.
//!
//! ```text
//! TREE_CONNECT · CREATE root, query volume and root, CLOSE · CREATE path, query, list, CLOSE · …
//! ```
//! A request of a compound takes over session and tree from the one before ([MS-SMB2] 3.2.4.1.4),
//! also from TREE_CONNECT. A server that does not support this still connects, and refuses the
//! rest. The summary is empty then, and callers query again, as they do for any reply that is not a
//! plain success.

use ropeway_smb_proto::client::{Operation, Reply};
use ropeway_smb_wire::create::{AccessMask, CreateResponse, OplockLevel};
use ropeway_smb_wire::info::{
    DirectoryRecord, FileAllInformation, FileFsAttributeInformation, FileFsFullSizeInformation,
    FileFsVolumeInformation, Information,
};
use ropeway_smb_wire::query_info::QueryInfoResponse;
use ropeway_smb_wire::{FileAttributes, FileId, NtStatus, Text, TreeId};

use crate::client::Client;
use crate::directory::{FIRST_MAX, records};
use crate::error::{Error, Result};
use crate::open::{Created, OpenFile};
use crate::ops;
use crate::private::QUERY;
use crate::share::{Share, Volume};
use crate::tree::{ShareInner, Tree};

/// The paths to summarize.
#[derive(Clone, Debug, Default)]
pub(crate) struct SummaryRequest {
    /// Paths. The root is always included.
    pub(crate) paths: Vec<Text>,
    /// The directory to list: one of the paths, or the root.
    pub(crate) names_of: Option<Text>,
}

/// The summary: the volume, the nodes at some paths, and one listing.
#[derive(Debug, Default)]
pub(crate) struct OpenSummary {
    pub(crate) volume: Option<Volume>,
    pub(crate) nodes: Vec<(Text, NodeSummary)>,
    /// A directory and all its names.
    pub(crate) names: Option<(Text, Vec<DirectoryRecord>)>,
}

/// The node at a path.
#[derive(Clone, Debug)]
pub(crate) enum NodeSummary {
    Missing,
    /// A node of any kind but a reparse point.
    There(Box<FileAllInformation>),
}

/// One open of the compound, and the requests on it.
struct NodeRequest {
    path: Text,
    with_volume: bool,
    with_names: bool,
}

impl SummaryRequest {
    fn nodes(&self) -> Vec<NodeRequest> {
        let mut paths = vec![Text::default()];
        paths.extend(self.paths.iter().filter(|path| !path.is_empty()).cloned());
        let node = |path: Text| NodeRequest {
            with_volume: path.is_empty(),
            with_names: self.names_of.as_ref() == Some(&path),
            path,
        };
        paths.into_iter().map(node).collect()
    }

    /// Returns the requests that follow TREE_CONNECT.
    pub(crate) fn operations(&self, client: &Client) -> Vec<Operation> {
        let transact_max = client.link().last().negotiated.max_transact;
        let mut operations = Vec::new();
        for node in self.nodes() {
            node.push(&mut operations, transact_max);
        }
        operations
    }

    /// Decodes the replies to [`operations`](Self::operations).
    pub(crate) fn summary(&self, replies: &[Reply]) -> OpenSummary {
        let mut summary = OpenSummary::default();
        let mut rest = replies;
        for node in self.nodes() {
            let count = node.len().min(rest.len());
            let (own, after) = rest.split_at(count);
            rest = after;
            node.take(own, &mut summary);
        }
        summary
    }
}

impl Client {
    /// Connects to a share and reads a summary of some paths, in one round trip.
    pub(crate) async fn share_with_summary(
        &self,
        name: &str,
        request: &SummaryRequest,
    ) -> Result<(Share, OpenSummary)> {
        match ShareInner::connect_with_summary(self, name, request).await {
            Ok((share, summary)) => Ok((Share::new(share), summary)),
            // DFS may refer to another share.
            Err(error) if error.status() == Some(NtStatus::BAD_NETWORK_NAME) => {
                Ok((self.share(name).await?, OpenSummary::default()))
            }
            Err(error) => Err(error),
        }
    }
}

impl ShareInner {
    /// Connects and reads the summary in one round trip, where the server allows it.
    pub(crate) async fn connect_with_summary(
        client: &Client,
        name: &str,
        summary_request: &SummaryRequest,
    ) -> Result<(Self, OpenSummary)> {
        let share = Self::new(client, name)?;
        if !client.link().compounds.is_usable() {
            share.tree().await?;
            return Ok((share, OpenSummary::default()));
        }
        let session = client.link().session().await?;
        let summary = match share
            .connect_tree(&session, summary_request.operations(client))
            .await
        {
            Ok((tree, replies)) => {
                *share.lock() = Some(tree);
                share.learn_private(&tree, &replies);
                match tree.is_dfs() {
                    // The requests ignored DFS, and the paths may lie elsewhere.
                    true => OpenSummary::default(),
                    false => summary_request.summary(&replies),
                }
            }
            // The connection was lost, or the compound was too much for this server.
            Err(Error::Lost(_) | Error::PeerMisbehaved(_) | Error::InvalidReply(_)) => {
                share.tree().await?;
                OpenSummary::default()
            }
            Err(error) => return Err(error),
        };
        Ok((share, summary))
    }
}

impl ShareInner {
    /// Notes what the answer to the first CREATE of a summary says of the private controls.
    fn learn_private(&self, tree: &Tree, replies: &[Reply]) {
        if let Some(created) = replies.first().filter(|reply| reply.status().is_success())
            && let Ok(created) = CreateResponse::decode(&mut created.body())
        {
            self.private.learn(tree, Created::from_wire(&created).private);
        }
    }
}

impl NodeRequest {
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
        // The first CREATE of the tree connection asks for the private controls as well.
        let contexts = match self.with_volume {
            true => vec![QUERY],
            false => Vec::new(),
        };
        operations.push(ops::create(tree, &self.path, &open, OplockLevel::None, contexts));
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

    /// Adds the replies to the summary. Skips replies that are not plain successes.
    fn take(self, replies: &[Reply], summary: &mut OpenSummary) {
        let [created, queried, more @ ..] = replies else {
            return;
        };
        if created.status() == NtStatus::OBJECT_NAME_NOT_FOUND {
            summary.nodes.push((self.path, NodeSummary::Missing));
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
            summary.volume = volume_of(volume, attributes, size);
            more = rest;
        }
        if let (true, [first, second, ..]) = (self.with_names, more) {
            // Only a complete listing counts: the second reply says that there is no more.
            if let (Ok(Some(names)), Ok(None)) = (records(first), records(second))
                && names.bad.is_empty()
            {
                summary.names = Some((self.path.clone(), names.good));
            }
        }
        summary.nodes.push((self.path, NodeSummary::There(Box::new(all))));
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
