//! Small files of a tree, in one round trip each.

use ropeway_block::{Block, BlockMut};
use ropeway_smb_wire::create::CreateDisposition;
use ropeway_smb_wire::fsctl::private_get::{GetFile, GetFlags};
use ropeway_smb_wire::fsctl::private_put::{PutFile, PutFlags};
use ropeway_smb_wire::info::FileBasicInformation;
use ropeway_smb_wire::{FileAttributes, Text};
use ropeway_vfs::{
    Create, Error, ErrorKind, GetSmall, GotSmall, Kind, Loss, Op, PutDone, PutSmall, RelPath, Result,
    Tree as _, Xattr,
};

use super::inner::Inner;
use super::xattrs::AttributePart;
use super::{SmbTree, map, same};
use crate::error::{Error as ClientError, Result as ClientResult};
use crate::get_files::Gets;
use crate::put_files::Puts;
use crate::snapshot::split_snapshot;

/// Writes a small file: CREATE, WRITE, SET_INFO, FLUSH, rename, CLOSE in one compound. Without a
/// rename the FLUSH comes before SET_INFO.
///
/// Some cases go step by step instead: extended attributes to set, content larger than one WRITE, a
/// name that is refused because a folder or a read-only file has it.
pub(super) async fn put(tree: &SmbTree, mut put: Box<PutSmall>) -> Result<PutDone> {
    let inner = &tree.inner;
    let size = put.content.as_ref().map_or(0, |content| content.len());
    let has_steps = put.change.xattrs.as_ref().is_some_and(|xattrs| {
        let may_have = inner.capabilities.takes_xattrs() && put.create != Create::New;
        may_have || xattrs.iter().any(|xattr| inner.takes(xattr))
    });
    if size > inner.share.limits().write_max as usize || has_steps {
        return Box::pin(ropeway_vfs::small::put_by_steps(tree, *put)).await;
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
    let request = request_of(&put, (target, temporary), basic);
    // The only reference to the content, so it is sealed and sent in place.
    let mut content = put.content.take().filter(|content| !content.is_empty());
    let copied = match &put.same_as {
        // On the heap, as all that is rare here: thousands of small files are under way.
        Some(from) => Box::pin(copied(tree, from, &request, content.as_deref())).await,
        None => None,
    };
    let reused = copied.is_some();
    let done = match copied {
        Some(done) => {
            content = None;
            done
        }
        None => send(inner, &request, &mut content).await,
    };
    let basic = match done {
        Ok(basic) => basic,
        Err(error) => {
            let is_whole = content.is_some() || size == 0;
            put.content = content;
            return Box::pin(by_steps(tree, (put, is_whole), error)).await;
        }
    };
    if asks_basic && let Err(error) = basic {
        let at = put.rename_to.as_ref().unwrap_or(&put.path);
        return Err(super::errors::tree_error(Op::SetAttributes, at, error));
    }
    if let Some(to) = put.rename_to.as_ref().filter(|_| reused) {
        tree.rename(&put.path, to, true).await?;
    }
    if !put.sync {
        inner.dirty.add(put.rename_to.as_ref().unwrap_or(&put.path));
    }
    Ok(PutDone { losses, reused })
}

/// Sends a file, together with others or alone. Leaves the content if that is still available.
async fn send(
    inner: &Inner,
    request: &crate::small::PutSmall,
    content: &mut Option<Block>,
) -> ClientResult<ClientResult<()>> {
    let share = &inner.share;
    let new = match &request.temporary {
        None => as_new(request, content.as_deref()),
        Some(_) => None,
    };
    let _putting = new.as_ref().map(|_| share.inner().puts.enter());
    let together = match new {
        Some(file) if share.goes_together::<Puts>(PutFile::len_of(&file.path, file.content.len())) => {
            Some(share.put_together(&file).await)
        }
        _ => None,
    };
    match together {
        Some(answer) => {
            // It is on its way. A refusal of a new name leads to no other try here.
            *content = None;
            answer.wait().await
        }
        None => {
            // More than these would want more credits than servers grant.
            let _alone = inner.small_alone.acquire().await;
            // On the heap: at our server most files are made together.
            let done = Box::pin(share.put_small_of(request, content)).await;
            done.map(|done| done.basic)
        }
    }
}

/// Makes the file, under its first name, from another one that has its content. `None` if nothing was made:
/// the content must be sent.
async fn copied(
    tree: &SmbTree,
    from: &RelPath,
    request: &crate::small::PutSmall,
    content: Option<&[u8]>,
) -> Option<ClientResult<ClientResult<()>>> {
    let file = as_new(request, content)?;
    same::copy(&tree.inner, from, &file).await.transpose()
}

/// Returns the request without its content.
fn request_of(
    put: &PutSmall,
    (path, temporary): (Text, Option<Text>),
    basic: Option<FileBasicInformation>,
) -> crate::small::PutSmall {
    crate::small::PutSmall {
        path,
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
    }
}

/// Returns the file as one of many in a request, under its first name, if that must be new.
fn as_new<'a>(request: &crate::small::PutSmall, content: Option<&'a [u8]>) -> Option<PutFile<'a>> {
    let is_new = request.disposition == CreateDisposition::Create;
    let flags = match request.flush {
        true => PutFlags::FLUSH,
        false => PutFlags::default(),
    };
    is_new.then(|| PutFile {
        path: request.temporary.as_ref().unwrap_or(&request.path).clone(),
        flags,
        basic: request.basic.unwrap_or_default(),
        content: content.unwrap_or_default(),
    })
}

/// Goes step by step after a refusal that this may avoid. Otherwise, or if the content is no longer
/// available, returns the error.
async fn by_steps(
    tree: &SmbTree,
    (put, is_whole): (Box<PutSmall>, bool),
    error: ClientError,
) -> Result<PutDone> {
    let mapped: Result<()> = tree.inner.map_error(Op::Create, &put.path, Err(error)).await;
    let Err(mut error) = mapped else {
        return Ok(PutDone::default());
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
        // The temporary name existed before and is not ours. Some servers report
        // FILE_IS_A_DIRECTORY for a folder.
        error.op = Op::Create;
        error.kind = ErrorKind::AlreadyExists;
        return Err(error);
    }
    if !replacing || !may_pass || !is_whole {
        return Err(error);
    }
    // Replaces what the compound left under the first name, in case another client created it.
    if put.create == Create::New {
        match tree.remove_file(&put.path).await {
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    ropeway_vfs::small::put_by_steps(tree, *put).await
}

/// Returns the file as one of many in a request.
fn as_one_of_many(path: &Text, length: usize, plain_only: bool) -> GetFile {
    GetFile {
        path: path.clone(),
        flags: match plain_only {
            true => GetFlags::PLAIN_ONLY,
            false => GetFlags::default(),
        },
        // Longer ones do not go together.
        length: u32::try_from(length).unwrap_or(u32::MAX),
    }
}

/// Reads a small file, together with others or alone. Returns its extended attributes as well, if they are
/// known by then.
async fn read(
    inner: &Inner,
    (text, asked): (&Text, usize),
    mut block: BlockMut,
    parts: &[AttributePart],
) -> (
    BlockMut,
    ClientResult<(crate::small::GotSmall, Option<Vec<Xattr>>)>,
) {
    let _getting = inner.share.inner().gets.enter();
    let goes_together = inner.share.goes_together::<Gets>(GetFile::len_of(text) + asked)
        // A snapshot is named by a create context.
        && split_snapshot(text).1.is_none();
    let together = match goes_together {
        true => {
            let file = as_one_of_many(text, asked, !parts.is_empty());
            inner.share.get_together(&file, &mut block).await
        }
        false => Ok(None),
    };
    match together {
        // It has no attributes, if that was asked.
        Ok(Some(got)) => (block, Ok((got, (!parts.is_empty()).then(Vec::new)))),
        Ok(None) => Box::pin(get_alone(inner, (text, asked), block, parts)).await,
        Err(error) => (block, Err(error)),
    }
}

/// Reads a small file in a compound of its own. Returns its extended attributes as well, if the replies
/// have all of them.
async fn get_alone(
    inner: &Inner,
    (path, asked): (&Text, usize),
    block: BlockMut,
    parts: &[AttributePart],
) -> (
    BlockMut,
    ClientResult<(crate::small::GotSmall, Option<Vec<Xattr>>)>,
) {
    // More than these would want more credits than servers grant.
    let _alone = inner.small_alone.acquire().await;
    let extra = |tree, file| parts.iter().map(|part| part.request(tree, file)).collect();
    let (block, got) = inner.share.get_small_with(path, asked, block, &extra).await;
    let with_xattrs = |(got, answers): (_, Vec<_>)| (got, Inner::plain_xattrs(parts, &answers));
    (block, got.map(with_xattrs))
}

/// Reads a small file: CREATE, READ, a query for streams and EAs, CLOSE in one compound. Existing
/// streams take further requests.
pub(super) async fn get(tree: &SmbTree, get: GetSmall, block: BlockMut) -> (BlockMut, Result<GotSmall>) {
    let inner = &tree.inner;
    let mut block = block;
    let is_known = get.is_known && block.len() as u64 == get.size;
    if !is_known {
        block.set_len(0);
    }
    if get.size > inner.share.limits().read_max.into() {
        return Box::pin(ropeway_vfs::small::get_by_steps(tree, get, block)).await;
    }
    let text = match inner.base.text(Op::Open, &get.path) {
        Ok(text) => text,
        Err(error) => return (block, Err(error)),
    };
    let asked = usize::try_from(get.size)
        .unwrap_or(usize::MAX)
        .min(block.capacity());
    let parts = match get.xattrs && inner.capabilities.takes_xattrs() {
        true => inner.parts_without_security(),
        false => Vec::new(),
    };
    // On the heap: few files are where another one was.
    let is_told = !get.xattrs || !inner.capabilities.takes_xattrs() || !parts.is_empty();
    if is_known
        && is_told
        && let Some(got) = Box::pin(known(inner, &get, (&text, &block), &parts)).await
    {
        if got.is_err() {
            block.set_len(0);
        }
        return (block, got);
    }
    block.set_len(0);
    let (mut block, got) = read(inner, (&text, asked), block, &parts).await;
    let length = block.len() as u64;
    if let Ok((got, _)) = &got
        && !got.changed
        && length < got.created.end_of_file.min(asked as u64)
    {
        // The server returned less than the file holds: the steps read the rest.
        return Box::pin(ropeway_vfs::small::get_by_steps(tree, get, block)).await;
    }
    match described(inner, &get, got, length).await {
        Ok(got) => (block, Ok(got)),
        Err(error) => {
            block.set_len(0);
            (block, Err(error))
        }
    }
}

/// Returns what is known of a file of which `length` bytes were read, and asks for what is missing.
async fn described(
    inner: &Inner,
    get: &GetSmall,
    got: ClientResult<(crate::small::GotSmall, Option<Vec<Xattr>>)>,
    length: u64,
) -> Result<GotSmall> {
    let (got, mut xattrs_known) = inner.map_error(Op::Open, &get.path, got).await?;
    let created = &got.created;
    let mut metadata = map::created(created, inner.volume);
    if created.basic.attributes.contains(FileAttributes::REPARSE_POINT) {
        Box::pin(inner.read_reparse_kind(Op::Open, &get.path, &mut metadata)).await?;
        xattrs_known = None;
        match metadata.kind {
            Kind::File => {}
            Kind::Symlink => return Err(Error::new(Op::Open, &get.path, ErrorKind::SymbolicLink)),
            _ => return Err(Error::new(Op::Open, &get.path, ErrorKind::Unsupported)),
        }
    }
    let xattrs = match get.xattrs {
        true if xattrs_known.is_some() => xattrs_known,
        true if inner.capabilities.takes_xattrs() => Some(Box::pin(inner.xattrs(&get.path)).await?),
        true => Some(Vec::new()),
        false => None,
    };
    Ok(GotSmall {
        metadata,
        xattrs,
        whole: !got.changed && created.end_of_file == length,
        reused: false,
    })
}

/// Reads a small file that has what the block holds; `None` if it must be read otherwise.
async fn known(
    inner: &Inner,
    get: &GetSmall,
    (text, content): (&Text, &[u8]),
    parts: &[AttributePart],
) -> Option<Result<GotSmall>> {
    let same = same::is_same(inner, (text, content), !parts.is_empty()).await;
    let metadata = match inner.map_error(Op::Open, &get.path, same).await {
        Ok(metadata) => metadata?,
        Err(error) => return Some(Err(error)),
    };
    Some(Ok(GotSmall {
        metadata,
        // It has none, if that was asked.
        xattrs: get.xattrs.then(Vec::new),
        whole: true,
        reused: true,
    }))
}
