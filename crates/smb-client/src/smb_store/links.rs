//! Symbolic and hard links.

use std::sync::Arc;

use ropeway_vfs::{Error, ErrorKind, Kind, Op, RelPath, Result};

use super::names::temporary;
use super::shared::Shared;

impl Shared {
    /// Returns the path to which the first link on `path` leads. `last`: whether the last name may
    /// be that link. `None` if the link leads out of the store, or cannot be found.
    pub(super) async fn follow(self: &Arc<Self>, path: &RelPath, last: bool) -> Result<Option<RelPath>> {
        let names: Vec<_> = path.components().collect();
        let mut at = RelPath::root();
        for (index, name) in names.iter().enumerate() {
            let dir = at.clone();
            at = at.join(name);
            if index + 1 == names.len() && !last {
                return Ok(None);
            }
            let stat = self.stat(Op::Open, &at).await?;
            if stat.kind == Kind::Symlink {
                let target = self.tree.read_link(&at).await?;
                let rest = &names[index + 1..];
                let followed = joined(&dir, &target);
                return Ok(followed.map(|followed| rest.iter().fold(followed, |path, name| path.join(name))));
            }
        }
        Ok(None)
    }

    /// Makes a symbolic link.
    pub(super) async fn symlink(self: &Arc<Self>, path: &RelPath, target: &[u8]) -> Result<()> {
        self.changed(path);
        let made = self.tree.make_symlink(path, target).await;
        self.changed(path);
        self.tree.note_change(path);
        made
    }

    /// Gives a file another name.
    pub(super) async fn link(self: &Arc<Self>, from: &RelPath, to: &RelPath, replace: bool) -> Result<()> {
        let source = self.stat(Op::Link, from).await?;
        if source.kind == Kind::Directory {
            return Err(Error::new(Op::Link, from, ErrorKind::IsADirectory));
        }
        self.changed(from);
        self.changed(to);
        self.tree.note_change(to);
        let mut linked = self.tree.make_hard_link(from, to).await;
        if replace
            && linked
                .as_ref()
                .is_err_and(|error| error.kind == ErrorKind::AlreadyExists)
        {
            linked = self.link_over(source.id, from, to).await;
        }
        self.changed(from);
        self.changed(to);
        linked
    }

    /// Replaces a file by a link: the link gets a temporary name first.
    async fn link_over(
        self: &Arc<Self>,
        id: ropeway_vfs::FileId,
        from: &RelPath,
        to: &RelPath,
    ) -> Result<()> {
        let there = self.ask(Op::Link, to).await?;
        if there.kind == Kind::Directory {
            return Err(Error::new(Op::Link, to, ErrorKind::IsADirectory));
        }
        if there.id == id {
            return Ok(());
        }
        let hidden = temporary(Op::Link, to, &to.parent().unwrap_or_default())?;
        self.tree.make_hard_link(from, &hidden).await?;
        if let Some(open) = self.files.at(to).into_iter().find(|file| file.is_open()) {
            self.keep_links(&open, to).await?;
            // Servers do not replace open files.
            let aside = self.hide(Op::Link, to).await?;
            open.removed(to, Some(&aside));
            self.remove_hidden(&aside).await?;
        }
        if self.tree.dirty.holds(to) {
            self.tree.flush_linked(to).await?;
        }
        let renamed = self.tree.rename(&hidden, to, true).await;
        if renamed.is_err() {
            // The first error matters more.
            let _ = self.tree.remove(&hidden, false).await;
        }
        renamed
    }
}

/// Returns the path of a link's target; `None` if it is absolute or leads out of the root.
fn joined(dir: &RelPath, target: &[u8]) -> Option<RelPath> {
    if target.starts_with(b"/") {
        return None;
    }
    let mut at = dir.clone();
    for part in target.split(|byte| *byte == b'/') {
        at = match part {
            b"" | b"." => at,
            b".." => at.parent()?,
            name => at.join(&ropeway_vfs::Name::new(name)?),
        };
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_stay_beneath_the_root() {
        let at = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let to = |dir: &str, target: &str| joined(&at(dir), target.as_bytes());
        assert_eq!(to("d", "x/./y"), Some(at("d/x/y")));
        assert_eq!(to("d/e", "../f"), Some(at("d/f")));
        assert_eq!(to("d", ".."), Some(RelPath::root()));
        assert_eq!(to("d", "../.."), None);
        assert_eq!(to("d", "a/../../../b"), None);
        assert_eq!(to("", "/etc/passwd"), None);
    }
}
