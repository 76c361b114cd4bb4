//! `ropeway mv`: renames within one volume or share; never copies data.

use std::path::Path;
use std::sync::Arc;

use ropeway_vfs::{End, ErrorKind, Metadata, Name, RelPath, Tree};
use serde_json::{Map, json};

use super::nodes::{self, Located, Printer};
use crate::args::MvArgs;
use crate::failure::{Failure, code};
use crate::place::Place;
use crate::servers::Servers;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The node could not be moved.
pub(crate) fn run(args: &MvArgs) -> Result<u8, Failure> {
    let servers = Servers::new(&args.share)?;
    nodes::run(&servers, async {
        let mut printer = Printer::new(args.json);
        refuse_two_sides(args)?;
        let source = nodes::find(&args.source, false, &servers).await?;
        let metadata = source.metadata(End::Source).await?;
        if source.path.is_root() {
            return Err(
                Failure::usage(format!("{} has no name", source.shown)).hint("give the folder by its name")
            );
        }
        let target = target(args, &source, &servers).await?;
        let (tree, from, to) = one_tree(&source, &target)?;
        rename(args, &metadata, &source, &target, (&*tree, &from, &to)).await?;
        printer.done();
        let mut fields = Map::new();
        fields.insert("path".to_owned(), json!(source.place.to_string()));
        fields.insert("target".to_owned(), json!(target.place.to_string()));
        fields.insert("action".to_owned(), json!("mv"));
        printer.object("item", fields);
        Ok(printer.finish())
    })
}

/// Refuses two ends that no rename can connect. It compares spellings, so that no login is needed.
fn refuse_two_sides(args: &MvArgs) -> Result<(), Failure> {
    let (source, target) = (
        Place::parse_target(&args.source)?,
        Place::parse_target(&args.target)?,
    );
    match (&source, &target) {
        (Place::Local(_), Place::Local(_)) => Ok(()),
        (Place::Remote(source), Place::Remote(target)) if source.same_share(target) => Ok(()),
        _ => Err(elsewhere(&args.source, &args.target)),
    }
}

fn elsewhere(source: &Path, target: &Path) -> Failure {
    let (source, target) = (source.display(), target.display());
    Failure::usage(format!(
        "{source} and {target} are on different volumes or shares, so they cannot be renamed"
    ))
    .hint(format!("use: ropeway copy --move {source} {target}"))
}

/// Returns the place to move to: in DST if DST is a folder, else DST itself.
async fn target(args: &MvArgs, source: &Located, servers: &Servers) -> Result<Located, Failure> {
    let follow = !args.no_target_directory;
    let named = nodes::find(&args.target, follow, servers)
        .await
        .map_err(|failure| match failure.code {
            code::SOURCE => Failure {
                code: code::TARGET,
                ..failure
            },
            _ => failure,
        })?;
    if args.no_target_directory {
        return Ok(named);
    }
    let is_folder = match named.tree.metadata(&named.path).await {
        Ok(metadata) => metadata.is_dir(),
        Err(error) if error.kind == ErrorKind::NotFound => false,
        Err(error) => return Err(named.fault("examine", &error, End::Target)),
    };
    let Some(name) = source.place.name().filter(|_| is_folder) else {
        return Ok(named);
    };
    let name = RelPath::root().join(&name);
    // Another spelling of the folder's own name, as in `mv Photos photos`, is a new name and not a
    // place inside the folder.
    if named.place == source.place {
        return Err(
            Failure::usage(format!("{} and {} are the same", source.shown, named.shown))
                .hint("there is nothing to move"),
        );
    }
    Ok(Located {
        tree: Arc::clone(&named.tree),
        place: named.place.join(&name),
        path: named.path.join_path(&name),
        shown: format!("{}/{name}", named.shown.trim_end_matches('/')),
    })
}

/// Returns one tree that contains both ends, and their paths in it.
fn one_tree(source: &Located, target: &Located) -> Result<(Arc<dyn Tree>, RelPath, RelPath), Failure> {
    let inside = || {
        Failure::usage(format!("the target {} is inside {}", target.shown, source.shown))
            .hint("choose a target outside of it")
    };
    let (Place::Local(from), Place::Local(to)) = (&source.place, &target.place) else {
        // Both ends are on one share. The server would refuse this rename because of the handle
        // that the rename itself holds on the folder.
        if lies_inside(
            &source.path,
            &target.path,
            source.tree.capabilities().case_sensitive,
        ) {
            return Err(inside());
        }
        return Ok((Arc::clone(&source.tree), source.path.clone(), target.path.clone()));
    };
    if to.starts_with(from) && from != to {
        return Err(inside());
    }
    let common = from
        .ancestors()
        .skip(1)
        .find(|above| to.starts_with(above) && *above != to)
        .unwrap_or(Path::new("/"));
    let below = |path: &Path| {
        use std::os::unix::ffi::OsStrExt;
        let rest = path.strip_prefix(common).unwrap_or(path);
        RelPath::parse(rest.as_os_str().as_bytes())
            .ok_or_else(|| Failure::usage(format!("{} is not a valid path", path.display())))
    };
    Ok((nodes::open(common)?, below(from)?, below(to)?))
}

/// Returns whether `to` is below `from`, and not another spelling of it.
fn lies_inside(from: &RelPath, to: &RelPath, case_sensitive: bool) -> bool {
    let spelled = |name: &Name| match case_sensitive {
        true => name.as_bytes().to_vec(),
        false => String::from_utf8_lossy(name.as_bytes())
            .to_lowercase()
            .into_bytes(),
    };
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let is_prefix = from
        .iter()
        .zip(&to)
        .all(|(from, to)| spelled(from) == spelled(to));
    from.len() < to.len() && is_prefix
}

async fn rename(
    args: &MvArgs,
    metadata: &Metadata,
    source: &Located,
    target: &Located,
    (tree, from, to): (&dyn Tree, &RelPath, &RelPath),
) -> Result<(), Failure> {
    let replace = args.force && !metadata.is_dir();
    let Err(error) = tree.rename(from, to, replace).await else {
        return Ok(());
    };
    Err(match error.kind {
        ErrorKind::AlreadyExists | ErrorKind::NotEmpty | ErrorKind::IsADirectory => {
            let message = format!("{} already exists; nothing was moved", target.shown);
            Failure::new(code::REFUSED, message).hint(match metadata.is_dir() {
                true => "move it away, or merge the folders with copy --move",
                false => "-f replaces an existing file",
            })
        }
        ErrorKind::CrossDevice => elsewhere(&args.source, &args.target),
        // Either the source or the target's folder is missing; the source existed a moment ago.
        ErrorKind::NotFound => {
            let message = format!("cannot move {} to {}: no such folder", source.shown, target.shown);
            Failure::new(code::TARGET, message).hint("create it first with `ropeway mkdir -p`")
        }
        _ => Failure::of_node(
            &format!("cannot move {} to {}", source.shown, target.shown),
            &error,
            End::Target,
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_inside_differs_from_another_spelling() {
        let inside = |from: &str, to: &str, case_sensitive| {
            let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
            lies_inside(&path(from), &path(to), case_sensitive)
        };
        assert!(inside("a/dir", "a/dir/sub", true) && inside("a/dir", "A/Dir/sub/more", false));
        assert!(!inside("a/dir", "a/DIR/sub", true) && !inside("a/dir", "a/Dir", false));
        assert!(!inside("a/dir", "a/directory/sub", true) && !inside("a/dir/sub", "a/dir", true));
    }
}
