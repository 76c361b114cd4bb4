//! Small files in one round trip.

use ropeway_block::BlockMut;
use ropeway_smb_wire::FileAttributes;
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_vfs::{
    Create, Error, ErrorKind, GetSmall, GotSmall, Kind, Loss, Op, PutSmall, Result, Tree as _,
};

use super::{Inner, SmbTree, map};

/// Writes one: CREATE, WRITE, SET_INFO, FLUSH, rename, CLOSE in one compound; without a rename the FLUSH comes first.
///
/// What the compound cannot hold (extended attributes to set, content larger than one WRITE, a name that is refused because a
/// folder or a read-only file stands there) goes step by step.
pub(super) async fn put(tree: &SmbTree, mut put: PutSmall) -> Result<Vec<Loss>> {
    let inner = &tree.inner;
    let size = put.content.as_ref().map_or(0, |content| content.len());
    let has_steps = put.change.xattrs.as_ref().is_some_and(|xattrs| {
        let may_have = inner.capabilities.takes_xattrs() && put.create != Create::New;
        may_have || xattrs.iter().any(|xattr| inner.takes(xattr))
    });
    if size > inner.share.limits().write_max as usize || has_steps {
        return ropeway_vfs::small::put_by_steps(tree, put).await;
    }
    let path = inner.base.new_text(Op::Create, &put.path)?;
    let to = match &put.rename_to {
        Some(to) => Some(inner.base.new_text(Op::Rename, to)?),
        None => None,
    };
    let (target, temporary) = match to {
        Some(to) => (to, Some(path)),
        None => (path, None),
    };
    let mut losses = map::losses(&put.change);
    let xattrs = put.change.xattrs.iter().flatten();
    losses.extend(xattrs.map(|xattr| Loss::of_xattr(&xattr.name)));
    let basic = map::change(&put.change, false);
    let asks_basic = basic.is_some();
    let request = crate::PutSmall {
        path: target,
        temporary,
        disposition: match put.create {
            Create::No => CreateDisposition::Overwrite,
            Create::New => CreateDisposition::Create,
            Create::IfMissing | Create::Truncate => CreateDisposition::OverwriteIf,
        },
        content: None,
        attributes: FileAttributes::NORMAL,
        basic,
        flush: put.sync,
        replace: true,
    };
    // Nobody else holds it: so it is protected and sent where it lies.
    let mut content = put.content.take().filter(|content| !content.is_empty());
    let done = match inner.share.put_small_of(&request, &mut content).await {
        Ok(done) => done,
        Err(error) => {
            let is_whole = content.is_some() || size == 0;
            put.content = content;
            return by_steps(tree, (put, is_whole), error).await;
        }
    };
    if asks_basic && let Err(error) = done.basic {
        let at = put.rename_to.as_ref().unwrap_or(&put.path);
        return Err(super::errors::fault(Op::SetAttributes, at, error));
    }
    if !put.sync {
        inner.dirty.add(put.rename_to.as_ref().unwrap_or(&put.path));
    }
    Ok(losses)
}

/// After a refusal that the steps may avoid; otherwise, or if the content is not there any more, the error.
async fn by_steps(
    tree: &SmbTree,
    (put, is_whole): (PutSmall, bool),
    error: crate::Error,
) -> Result<Vec<Loss>> {
    let refined: Result<()> = tree.inner.refined(Op::Create, &put.path, Err(error)).await;
    let Err(mut error) = refined else {
        return Ok(Vec::new());
    };
    let replacing = put.create == Create::Truncate || put.rename_to.is_some();
    let may_pass = matches!(
        error.kind,
        ErrorKind::PermissionDenied | ErrorKind::AlreadyExists | ErrorKind::IsADirectory
    );
    if put.create == Create::New
        && put.rename_to.is_some()
        && may_pass
        && let Ok(found) = tree.inner.stat(Op::Create, &put.path).await
        && (found.kind != Kind::File || error.kind == ErrorKind::AlreadyExists && found.size > 0)
    {
        // The name to write under was taken before: nothing of ours. Some servers say of a folder that it is one.
        error.op = Op::Create;
        error.kind = ErrorKind::AlreadyExists;
        return Err(error);
    }
    if !replacing || !may_pass || !is_whole {
        return Err(error);
    }
    // What the compound left under the first name is made anew, in case somebody else made it.
    if put.create == Create::New {
        match tree.remove_file(&put.path).await {
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    ropeway_vfs::small::put_by_steps(tree, put).await
}

/// Reads one: CREATE, READ, what there is of streams and EAs, CLOSE in one compound; streams that are there cost their own
/// questions.
pub(super) async fn get(tree: &SmbTree, get: GetSmall, block: BlockMut) -> (BlockMut, Result<GotSmall>) {
    let inner = &tree.inner;
    let mut block = block;
    block.set_len(0);
    if get.size > inner.share.limits().read_max.into() {
        return ropeway_vfs::small::get_by_steps(tree, get, block).await;
    }
    let text = match inner.base.text(Op::Open, &get.path) {
        Ok(text) => text,
        Err(error) => return (block, Err(error)),
    };
    let asked = usize::try_from(get.size).unwrap_or(usize::MAX);
    let parts = match get.xattrs && inner.capabilities.takes_xattrs() {
        true => inner.parts_beside(),
        false => Vec::new(),
    };
    let beside = |tree, file| parts.iter().map(|part| part.question(tree, file)).collect();
    let (mut block, got) = inner.share.get_small_with(&text, asked, block, &beside).await;
    let length = block.len() as u64;
    if let Ok((got, _)) = &got
        && !got.changed
        && length < got.created.end_of_file.min(asked as u64)
    {
        // A server that gave less than there is: the steps ask for the rest.
        return ropeway_vfs::small::get_by_steps(tree, get, block).await;
    }
    let got = async {
        let (got, answers) = inner.refined(Op::Open, &get.path, got).await?;
        let mut told = Inner::plain_xattrs(&parts, &answers);
        let created = &got.created;
        let mut metadata = map::created(created, inner.volume);
        if created.basic.attributes.contains(FileAttributes::REPARSE_POINT) {
            inner.look_into(Op::Open, &get.path, &mut metadata).await?;
            told = None;
            match metadata.kind {
                Kind::File => {}
                Kind::Symlink => return Err(Error::new(Op::Open, &get.path, ErrorKind::SymbolicLink)),
                _ => return Err(Error::new(Op::Open, &get.path, ErrorKind::Unsupported)),
            }
        }
        let xattrs = match get.xattrs {
            true if told.is_some() => told,
            true if inner.capabilities.takes_xattrs() => Some(inner.xattrs(&get.path).await?),
            true => Some(Vec::new()),
            false => None,
        };
        let whole = !got.changed && created.end_of_file == length;
        Ok((metadata, xattrs, whole))
    };
    match got.await {
        Ok((metadata, xattrs, whole)) => {
            let got = GotSmall {
                metadata,
                xattrs,
                whole,
            };
            (block, Ok(got))
        }
        Err(error) => {
            block.set_len(0);
            (block, Err(error))
        }
    }
}
