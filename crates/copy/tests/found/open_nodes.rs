//! Nodes that other clients of a server have open while a mirror replaces them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use ropeway_copy::{Delete, JobSpec, Options, Status};
use ropeway_vfs::decorate::{Action, Call, Done, Layer, Layered, Operation};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Error, ErrorKind, RelPath, Result, Tree};

use super::kit::path;

/// A server on which somebody has every node open: a removed node keeps its name.
#[derive(Default)]
struct AllOpen {
    removed: Mutex<BTreeSet<RelPath>>,
}

impl Layer for AllOpen {
    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        let action = call.action;
        let gives_name = matches!(
            action,
            Action::Rename | Action::Create | Action::MakeDir | Action::PutSmall
        );
        if gives_name && self.removed.lock().unwrap().contains(call.path) {
            return Err(Error::new(action.op(), call.path, ErrorKind::AlreadyExists));
        }
        let done = operation().await?;
        if matches!(action, Action::RemoveFile | Action::RemoveDir) {
            self.removed.lock().unwrap().insert(call.path.clone());
        }
        Ok(done)
    }
}

/// Mirrors a source that has this file, to a target that has that file, on such a server.
async fn mirror(new: &str, old: &str) {
    let (source, target) = (MemoryTree::new(), Arc::new(MemoryTree::new()));
    source.insert_file(&path(new), b"new").unwrap();
    let copy = path("copy");
    target.insert_file(&copy.join_path(&path(old)), b"old").unwrap();
    let server = Layered::wrap(Arc::clone(&target) as Arc<dyn Tree>, AllOpen::default());
    let options = Options {
        delete: Some(Delete::default()),
        ..Options::default()
    };
    let spec = JobSpec::whole(Arc::new(source), server, copy.clone(), options);
    let (outcome, events) = spec.run().await;
    assert_eq!(outcome.status, Status::Done, "{outcome:?} {events:?}");
    assert_eq!(target.content(&copy.join_path(&path(new))).unwrap(), b"new");
}

#[tokio::test(start_paused = true)]
async fn a_folder_takes_the_place_of_an_open_file() {
    mirror("a/b", "a").await;
}

#[tokio::test(start_paused = true)]
async fn a_file_takes_the_place_of_an_open_folder() {
    mirror("a", "a/b").await;
}
