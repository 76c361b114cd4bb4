use ropeway_block::Pool;

use super::*;
use crate::VirtualClock;
use crate::clock::simulate;
use crate::decorate::test_kit::{create, path, reader, source, write};

#[test]
fn changes_are_reported_in_order_and_have_no_effect() {
    let memory = source(100);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let tree = DryRun::new(memory.clone(), move |intent| {
        log.lock()
            .unwrap()
            .push(format!("{:?} {} {}", intent.action, intent.path, intent.bytes));
    });
    let pool = Pool::new(4096, 1);
    simulate(&VirtualClock::new(), async {
        tree.make_dir(&path("dir"), 0o755).await.unwrap();
        let names = [Name::new(b"a").unwrap()];
        let found = tree.lookup(&path("dir"), &names).await.unwrap();
        assert!(
            matches!(found[..], [Ok(None)]),
            "a folder that would be there is empty"
        );
        let mut listing = tree.list(&path("dir")).await.unwrap();
        assert!(listing.next(10).await.unwrap().is_empty());
        let file = create(&*tree, "dir/tmp").await.unwrap();
        write(&*file, &pool, 0, 50).await.unwrap();
        assert_eq!(file.metadata().await.unwrap().size, 50);
        tree.rename(&path("dir/tmp"), &path("file"), true).await.unwrap();
        tree.remove_file(&path("file")).await.unwrap();
        assert_eq!(
            create(&*tree, "file").await.err().unwrap().kind,
            ErrorKind::AlreadyExists
        );
        assert_eq!(reader(&*tree).await.metadata().await.unwrap().size, 100);
        tree.sync().await.unwrap();
    });
    let wanted = [
        "MakeDir dir 0",
        "Create dir/tmp 0",
        "Write dir/tmp 50",
        "Rename file 0",
        "RemoveFile file 0",
    ];
    assert_eq!(*seen.lock().unwrap(), wanted);
    assert_eq!(memory.content(&path("file")).unwrap().len(), 100);
}
