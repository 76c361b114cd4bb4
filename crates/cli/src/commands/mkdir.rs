//! `ropeway mkdir`.

use std::path::Path;

use ropeway_vfs::{End, ErrorKind, RelPath, Tree};
use rustix::fs::Mode;
use rustix::process::umask;
use serde_json::{Map, json};

use super::nodes::{self, Located, Printer};
use crate::args::MkdirArgs;
use crate::ends::parent_of;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;

const PARENTS: &str = "-p creates missing parent folders too";

/// Runs the command and returns its exit code.
///
/// # Errors
/// The only folder could not be created.
pub(crate) fn run(args: &MkdirArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    // The tree sets modes exactly, so the umask must be applied here, as mkdir(2) does.
    let mask = umask(Mode::empty());
    umask(mask);
    let mode = 0o777 & !mask.bits();
    nodes::run(&servers, async {
        let mut printer = Printer::new(args.json);
        for path in &args.paths {
            let result = make(path, args.parents, mode, &servers, &mut printer).await;
            printer.finish_argument(result, args.paths.len() == 1)?;
        }
        Ok(printer.finish())
    })
}

async fn make(
    path: &Path,
    parents: bool,
    mode: u32,
    servers: &Servers,
    printer: &mut Printer,
) -> Result<(), Failure> {
    let located = match Place::parse_target(path)? {
        Place::Local(path) if parents => below_existing(&path)?,
        Place::Local(path) if is_missing(parent_of(&path)) => {
            let (folder, parent) = (path.display(), parent_of(&path).display());
            let message = format!("cannot create folder {folder}: there is no folder {parent}");
            return Err(Failure::new(code::TARGET, message).hint(PARENTS));
        }
        Place::Local(_) | Place::Remote(_) => {
            nodes::find(path, true, servers)
                .await
                .map_err(|failure| match failure.code {
                    code::SOURCE => Failure {
                        code: code::TARGET,
                        ..failure
                    },
                    _ => failure,
                })?
        }
    };
    let made = if located.path.is_root() && parents {
        Vec::new()
    } else if located.path.is_root() {
        let message = format!("cannot create folder {}: it already exists", located.shown);
        return Err(Failure::new(code::TARGET, message).hint("-p accepts an existing folder"));
    } else if parents {
        make_all(&*located.tree, &located.path, mode)
            .await
            .map_err(|error| located.fault("create folder", &error, End::Target))?
    } else {
        make_one(&located, mode).await?;
        vec![located.path.clone()]
    };
    for path in made {
        printer.done();
        let mut fields = Map::new();
        fields.insert("path".to_owned(), json!(located.place_of(&path).to_string()));
        fields.insert("action".to_owned(), json!("mkdir"));
        printer.object("item", fields);
    }
    Ok(())
}

fn is_missing(folder: &Path) -> bool {
    folder
        .metadata()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

async fn make_one(located: &Located, mode: u32) -> Result<(), Failure> {
    located.tree.make_dir(&located.path, mode).await.map_err(|error| {
        let failure = located.fault("create folder", &error, End::Target);
        match error.kind {
            ErrorKind::NotFound => failure.hint(PARENTS),
            ErrorKind::AlreadyExists => failure.hint("-p accepts an existing folder"),
            _ => failure,
        }
    })
}

/// Creates a folder and its missing parents; returns the created ones in order. It tries the last
/// folder first: the others usually exist, and each check costs a round trip.
async fn make_all(tree: &dyn Tree, path: &RelPath, mode: u32) -> ropeway_vfs::Result<Vec<RelPath>> {
    let mut wanted = vec![path.clone()];
    let mut made = Vec::new();
    while let Some(next) = wanted.last().cloned() {
        match tree.make_dir(&next, mode).await {
            Ok(()) => {
                made.push(next);
                wanted.pop();
            }
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                if !tree.metadata(&next).await?.is_dir() {
                    return Err(error);
                }
                wanted.pop();
            }
            Err(error) if error.kind == ErrorKind::NotFound => match next.parent() {
                Some(parent) if !parent.is_root() && !made.contains(&parent) => wanted.push(parent),
                _ => return Err(error),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// Returns a local path relative to its deepest existing parent folder.
fn below_existing(path: &Path) -> Result<Located, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let mut existing = path;
    while !existing.exists() && existing != Path::new(".") && existing != Path::new("/") {
        existing = parent_of(existing);
    }
    let fault = |error: std::io::Error| {
        let message = format!(
            "cannot create folder {}: {}",
            path.display(),
            crate::ends::cause(&error)
        );
        Failure::of_end(message, &error, code::TARGET).hint("check the spelling")
    };
    let root = std::fs::canonicalize(existing).map_err(fault)?;
    if !root.is_dir() {
        let message = format!(
            "cannot create folder {}: {} is a file",
            path.display(),
            existing.display()
        );
        return Err(Failure::new(code::TARGET, message).hint("choose another name, or move that file away"));
    }
    let rest = path.strip_prefix(existing).unwrap_or(path);
    let plain: std::path::PathBuf = rest
        .components()
        .filter(|part| !matches!(part, std::path::Component::CurDir))
        .collect();
    let rest = RelPath::parse(plain.as_os_str().as_bytes()).ok_or_else(|| {
        Failure::usage(format!(
            "{}: `..` after a folder that does not exist",
            path.display()
        ))
        .hint("give the path without `..`")
    })?;
    Ok(Located {
        tree: nodes::open(&root)?,
        place: Place::Local(root).join(&rest),
        path: rest,
        shown: path.display().to_string(),
    })
}
