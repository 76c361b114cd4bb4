//! Copies one node, and then links the other names of the file to the copy.

use std::sync::Arc;

use ropeway_vfs::EndError;

use crate::job::context::Context;
use crate::place::failure::fail_file;
use crate::place::task::FileTask;
use crate::transfer::file::copy_file_alone;
use crate::transfer::links::{complete_links, fail_links};
use crate::transfer::special::copy_special_alone;

/// Copies a file, then links its other names.
pub(crate) async fn copy_file(context: &Arc<Context>, task: FileTask) {
    let (link, folder, name) = (task.link, Arc::clone(&task.folder), task.name.clone());
    let done = copy_file_alone(context, task).await;
    if let Some(id) = link {
        if done {
            complete_links(context, id, &folder, &name).await;
        } else {
            fail_links(context, id).await;
        }
    }
}

/// Copies a symbolic link, FIFO or device, then links its other names. An equal one stays.
pub(crate) async fn copy_special(context: &Arc<Context>, task: FileTask) {
    let done = copy_special_alone(context, &task).await;
    match task.link {
        Some(id) if done => complete_links(context, id, &task.folder, &task.name).await,
        Some(id) => fail_links(context, id).await,
        None => {}
    }
}

/// Fails a file, then copies the next of its other names.
pub(crate) async fn fail_node(context: &Arc<Context>, task: FileTask, failed: EndError) {
    fail_file(context, &task, failed).await;
    if let Some(id) = task.link {
        fail_links(context, id).await;
    }
}
