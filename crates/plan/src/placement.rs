//! Decides where the data of a new node goes until the node is complete.
//!
//! | folder | what stands under the name | node | spot |
//! |---|---|---|---|
//! | hidden | whatever | file | final name |
//! | visible | a file with one name, and `--inplace` | file | in place |
//! | visible | anything else | file | temporary name |
//! | hidden | nothing | link, FIFO, device, hard link | final name |
//! | hidden | something | link, FIFO, device, hard link | temporary name |
//! | visible | whatever | link, FIFO, device, hard link | temporary name |
//!
//! A folder is hidden while it, or a folder above it, has a temporary name. Whatever stands in a
//! hidden folder was left by an earlier run of the same job. So it is no version of anything, and it
//! is never overwritten in place.

use ropeway_vfs::{Kind, Metadata};

/// Whether users can see a folder of the target while a job fills it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// It lies in a folder with a temporary name, or has one itself.
    Hidden,
    /// It has its final path.
    Visible,
}

/// Where the data of a node goes until the node is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// Under a temporary name in the same folder.
    Temporary,
    /// Under its final name in a hidden folder.
    Final,
    /// Over the old content of the file that has its final name.
    InPlace,
}

impl Spot {
    /// Returns the spot of a file. `existing` is what stands under its name.
    pub fn of_file(folder: Visibility, existing: Option<&Metadata>, inplace: bool) -> Self {
        // A file with other names is another file, too: it keeps its content.
        let is_single = existing.is_some_and(|existing| existing.kind == Kind::File && existing.links < 2);
        match folder {
            Visibility::Hidden => Self::Final,
            Visibility::Visible if inplace && is_single => Self::InPlace,
            Visibility::Visible => Self::Temporary,
        }
    }

    /// Returns the spot of a node without data: a symbolic link, a FIFO, a device, or one more name of
    /// a file. `is_taken` is whether anything stands under its name.
    pub fn of_node(folder: Visibility, is_taken: bool) -> Self {
        match (folder, is_taken) {
            (Visibility::Hidden, false) => Self::Final,
            _ => Self::Temporary,
        }
    }

    /// Whether the node has its final name from the start.
    pub fn has_final_name(self) -> bool {
        self != Self::Temporary
    }
}

/// What a file needs besides data, attributes and a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extras {
    /// Other names of the file are linked to this copy.
    pub linked: bool,
    /// A file that is replaced is kept as a backup.
    pub backup: bool,
    /// Something stands under its name.
    pub taken: bool,
}

/// Whether a small file may be copied whole by one call, since its copy is nothing but data,
/// attributes and at most one rename.
pub fn is_plain(folder: Visibility, extras: Extras) -> bool {
    match folder {
        Visibility::Visible => !extras.linked && !extras.backup,
        Visibility::Hidden => !(extras.linked && extras.taken),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Visibility::{Hidden, Visible};
    use ropeway_vfs::Timestamp;

    fn node(kind: Kind, links: u64) -> Metadata {
        Metadata {
            links,
            ..Metadata::bare(kind, 1, Timestamp(0))
        }
    }

    #[test]
    fn where_a_file_goes() {
        let (file, linked) = (node(Kind::File, 1), node(Kind::File, 2));
        let (dir, pipe) = (node(Kind::Directory, 1), node(Kind::Fifo, 1));
        let table = [
            (Hidden, None, false, Spot::Final),
            (Hidden, Some(&file), true, Spot::Final),
            (Hidden, Some(&dir), false, Spot::Final),
            (Visible, None, false, Spot::Temporary),
            (Visible, None, true, Spot::Temporary),
            (Visible, Some(&file), false, Spot::Temporary),
            (Visible, Some(&file), true, Spot::InPlace),
            (Visible, Some(&linked), true, Spot::Temporary),
            (Visible, Some(&dir), true, Spot::Temporary),
            (Visible, Some(&pipe), true, Spot::Temporary),
        ];
        for (folder, existing, inplace, expected) in table {
            let found = Spot::of_file(folder, existing, inplace);
            assert_eq!(found, expected, "{folder:?} {existing:?} inplace={inplace}");
        }
    }

    #[test]
    fn where_a_node_without_data_goes() {
        let table = [
            (Hidden, false, Spot::Final),
            (Hidden, true, Spot::Temporary),
            (Visible, false, Spot::Temporary),
            (Visible, true, Spot::Temporary),
        ];
        for (folder, is_taken, expected) in table {
            assert_eq!(Spot::of_node(folder, is_taken), expected);
        }
    }

    #[test]
    fn which_small_files_are_plain() {
        let extras = |linked, backup, taken| Extras {
            linked,
            backup,
            taken,
        };
        let table = [
            (Visible, extras(false, false, true), true),
            (Visible, extras(true, false, false), false),
            (Visible, extras(false, true, false), false),
            (Hidden, extras(false, true, true), true),
            (Hidden, extras(true, true, false), true),
            (Hidden, extras(true, false, true), false),
        ];
        for (folder, extras, expected) in table {
            assert_eq!(is_plain(folder, extras), expected, "{folder:?} {extras:?}");
        }
    }
}
