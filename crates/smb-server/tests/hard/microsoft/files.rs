//! CreateClose, ChangeNotify and others: what a tree and its files answer.

use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::CreateOptions;

use crate::raw::{Create, Raw};
use crate::serve::Serve;

/// CreateClose_CreateAndCloseFileWithDotDir and DirWithDotDir: `.` is the folder itself (note to [MS-SMB2]
/// 3.3.5.9).
#[test]
fn a_dot_in_a_path_is_the_folder_itself() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("d")).unwrap();
    let serve = Serve::start(folder.path());
    let mut raw = Raw::ready(serve.address);
    let file = raw.create(&Create::of("d\\.\\file")).unwrap();
    let made = raw.create(&Create {
        options: CreateOptions::DIRECTORY_FILE,
        ..Create::of(".\\d\\.\\made")
    });
    assert_eq!(raw.close(file), NtStatus::SUCCESS);
    assert_eq!(raw.close(made.unwrap()), NtStatus::SUCCESS);
    assert!(folder.path().join("d/file").is_file());
    assert!(folder.path().join("d/made").is_dir());
}
