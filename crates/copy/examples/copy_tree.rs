//! Copies a folder: `cargo run --release --example copy_tree -- SRC DST`. DST's parent must exist.

use std::path::PathBuf;
use std::sync::Arc;

use ropeway_copy::{Durability, Job, JobSpec, Options};
use ropeway_local::{LocalOptions, LocalTree};
use ropeway_vfs::RelPath;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("usage: copy_tree SRC DST".into());
    };
    let durability = if arguments.next().is_some() {
        Durability::None
    } else {
        Durability::End
    };
    let parent = to.parent().ok_or("DST has no parent")?;
    let name = to.file_name().ok_or("DST has no name")?;
    let source = LocalTree::open(&from, LocalOptions::default())?;
    let to = RelPath::parse(name.as_encoded_bytes()).ok_or("DST is no plain name")?;
    let target = LocalTree::open(parent, LocalOptions::default())?;
    let options = Options {
        durability,
        ..Options::default()
    };
    let job = Job::new(JobSpec::whole(source, target, to, options));
    let outcome = job.run(Arc::new(|event| eprintln!("{event:?}"))).await;
    println!("{:?}: {:?}", outcome.status, outcome.summary);
    Ok(())
}
