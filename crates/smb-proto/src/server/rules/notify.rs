//! Rules of CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19, [MS-FSA] 2.1.5.11): which filter reports which change.

use ropeway_smb_wire::change_notify::{Action, CompletionFilter};

/// The kind of node that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A file, or its unnamed stream.
    File,
    /// A folder.
    Directory,
    /// A named stream of either.
    Stream,
}

impl Changed {
    /// The action and filter of an entry that was added ([`Action::ADDED`]) or removed.
    pub fn entry(self, added: bool) -> (Action, CompletionFilter) {
        let action = match (self, added) {
            (Self::Stream, true) => Action::ADDED_STREAM,
            (Self::Stream, false) => Action::REMOVED_STREAM,
            (_, true) => Action::ADDED,
            (_, false) => Action::REMOVED,
        };
        let filter = match self {
            Self::File => CompletionFilter::FILE_NAME,
            Self::Directory => CompletionFilter::DIR_NAME,
            Self::Stream => CompletionFilter::STREAM_NAME,
        };
        (action, filter)
    }

    /// The action of a node whose content or metadata changed.
    pub fn modified(self) -> Action {
        match self {
            Self::Stream => Action::MODIFIED_STREAM,
            Self::File | Self::Directory => Action::MODIFIED,
        }
    }

    /// The filters that report a change of content or length.
    pub fn written(self) -> CompletionFilter {
        match self {
            Self::Stream => CompletionFilter::STREAM_SIZE | CompletionFilter::STREAM_WRITE,
            Self::File | Self::Directory => CompletionFilter::SIZE | CompletionFilter::LAST_WRITE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_node_has_its_filter() {
        assert_eq!(
            Changed::File.entry(true),
            (Action::ADDED, CompletionFilter::FILE_NAME)
        );
        assert_eq!(
            Changed::Directory.entry(false),
            (Action::REMOVED, CompletionFilter::DIR_NAME)
        );
        assert_eq!(
            Changed::Stream.entry(false),
            (Action::REMOVED_STREAM, CompletionFilter::STREAM_NAME)
        );
        assert_eq!(Changed::Stream.modified(), Action::MODIFIED_STREAM);
        assert_eq!(Changed::File.modified(), Action::MODIFIED);
        assert!(Changed::Stream.written().contains(CompletionFilter::STREAM_WRITE));
        assert!(Changed::File.written().contains(CompletionFilter::LAST_WRITE));
    }
}
