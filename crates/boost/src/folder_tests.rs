//! Tests of a cache's folder that others have prepared.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

use super::*;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_that_others_may_change_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    for open_mode in [0o777, 0o775, 0o1777] {
        mode(folder, open_mode);
        let made = create(folder, Some(SIZE_MIN));
        assert!(matches!(made, Err(FolderError::OpenFolder(_))), "{open_mode:o}");
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "{open_mode:o}");
    }
    mode(folder, 0o755);
    create(folder, Some(SIZE_MIN)).unwrap();
    mode(folder, 0o777);
    assert!(matches!(open(folder), Err(FolderError::OpenFolder(_))));
    mode(folder, 0o700);
    drop(open(folder).unwrap());
    if !geteuid().is_root() {
        return;
    }
    // Whoever owns the key, or the folder that it is in, could make blocks that open.
    for at in [folder.to_owned(), folder.join(KEY)] {
        chown(&at, Some(12_345), None).unwrap();
        let refused = open(at.ancestors().find(|at| at.is_dir()).unwrap());
        assert!(matches!(
            refused,
            Err(FolderError::OpenFolder(_) | FolderError::OpenKey(_))
        ));
        chown(&at, Some(0), None).unwrap();
    }
    drop(open(folder).unwrap());
}

#[test]
fn a_link_in_place_of_an_unfinished_file_is_not_followed() {
    let place = tempfile::tempdir().unwrap();
    let (other, status) = (place.path().join("other"), place.path().join(STATUS));
    fs::write(&other, "another file").unwrap();
    let temporary = place.path().join(format!("{STATUS}{}", probe::TEMPORARY));
    symlink(&other, &temporary).unwrap();
    replace(&status, b"figures").unwrap();
    assert_eq!(fs::read(&status).unwrap(), b"figures");
    assert_eq!(fs::read(&other).unwrap(), b"another file");
    assert!(temporary.symlink_metadata().is_err());
}
