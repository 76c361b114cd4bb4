//! How many nodes are removed at a time, and which folders are visited together.

use ropeway_vfs::{RelPath, Tree};

/// Largest number of nodes of all folders removed at a time where an end is behind a network: 64 in 75 ms are 850 a
/// second, and few servers remove more. A guess.
const AT_ONCE_MAX: usize = 64;
/// Largest number of folders visited at a time. A guess: listings are large.
const FOLDERS_AT_ONCE_MAX: usize = 4;

/// Returns the number of nodes removed at a time from a tree, or looked up there before one is removed
/// elsewhere: 1 for a local one.
pub(super) fn nodes_at_once(tree: &dyn Tree) -> usize {
    tree.capabilities().small_in_flight.clamp(1, AT_ONCE_MAX)
}

/// Returns the number of folders visited at a time where so many nodes are removed at a time.
pub(super) fn folders_at_once(nodes_at_once: usize) -> usize {
    nodes_at_once.min(FOLDERS_AT_ONCE_MAX)
}

/// Takes folders off the stack that can be visited at the same time: some whose content is to be removed, or
/// empty ones of one folder. `look` returns a folder's path and whether it was emptied.
pub(super) fn next_batch<T>(
    stack: &mut Vec<T>,
    at_once: usize,
    look: impl Fn(&T) -> (&RelPath, bool),
) -> Vec<T> {
    let Some((last, is_emptied)) = stack.last().map(&look) else {
        return Vec::new();
    };
    let parent = last.parent();
    let is_alike = |folder: &&T| match look(folder) {
        (_, emptied) if emptied != is_emptied => false,
        (path, emptied) => !emptied || path.parent() == parent,
    };
    let alike = stack.iter().rev().take(at_once).take_while(is_alike);
    let first = stack.len() - alike.count();
    stack.split_off(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_folders_of_one_folder_are_taken_together() {
        let folder = |path: &str, emptied| (RelPath::parse(path.as_bytes()).expect("a path"), emptied);
        let mut stack = vec![
            folder("a", true),
            folder("a/b", true),
            folder("a/c", true),
            folder("a/d", false),
            folder("e/f", false),
            folder("e/g", false),
        ];
        let mut take = |at_once| {
            let batch = next_batch(&mut stack, at_once, |(path, emptied)| (path, *emptied));
            batch.iter().map(|(path, _)| path.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(take(2), ["e/f", "e/g"]);
        assert_eq!(take(2), ["a/d"]);
        assert_eq!(take(4), ["a/b", "a/c"]);
        assert_eq!(take(4), ["a"]);
        assert!(take(4).is_empty());
    }
}
