//! Mapped names: the result is allowed under Windows rules, and mapping back yields the original
//! name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ropeway_plan::names::{Collision, FolderNames, NameMap, NamePolicy};
use ropeway_vfs::memory::MemoryTree;
use ropeway_vfs::{Capabilities, Name, Tree};

/// Capabilities of a volume under Windows rules or not.
fn volume(windows_names: bool, name_max: usize) -> Capabilities {
    Capabilities {
        windows_names,
        raw_names: !windows_names,
        case_sensitive: !windows_names,
        name_max,
        ..MemoryTree::new().capabilities().clone()
    }
}

/// The naming rules in short, written independently of the code under test.
fn is_allowed(name: &Name) -> bool {
    let Ok(text) = std::str::from_utf8(name.as_bytes()) else {
        return false;
    };
    !text.chars().any(|c| c < ' ' || "\"*:<>?\\|/".contains(c)) && !text.ends_with(['.', ' '])
}

fn check(name: &Name) {
    let (linux, windows) = (volume(false, usize::MAX), volume(true, usize::MAX));
    let there = NameMap::new(&linux, &windows, NamePolicy::Auto);
    let back = NameMap::new(&windows, &linux, NamePolicy::Auto);
    let refuse = NameMap::new(&linux, &windows, NamePolicy::Refuse);

    let mapped = there
        .map(name)
        .expect("without a limit of length every name can be mapped");
    assert!(is_allowed(&mapped.name), "{name} -> {}", mapped.name);
    assert_eq!(there.check(&mapped.name), Ok(()));
    assert_eq!(mapped.changed, mapped.name != *name);
    let first = back.map(&mapped.name).expect("the target holds every name");
    assert_eq!(first.name, *name, "by way of {}", mapped.name);

    // A name of a Windows volume that was mapped back maps to the same name again.
    assert_eq!(refuse.map(name).is_ok(), refuse.check(name).is_ok());
    let here = back.map(name).expect("the target holds every name");
    if refuse.check(name).is_ok() && here.changed {
        assert_eq!(there.map(&here.name).map(|again| again.name).as_ref(), Ok(name));
    }

    let short = NameMap::new(&linux, &volume(true, 255), NamePolicy::Auto);
    if let Ok(mapped) = short.map(name) {
        let text = String::from_utf8_lossy(mapped.name.as_bytes());
        assert!(text.encode_utf16().count() <= 255, "{name}");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut folded = FolderNames::new(&volume(true, 255));
    let mut exact = FolderNames::new(&volume(false, 255));
    for name in data.split(|byte| *byte == b'/').filter_map(Name::new) {
        check(&name);
        folded.insert(&name);
        assert_ne!(exact.insert(&name), Some(Collision::Case));
        if folded.insert(&name) != Some(Collision::Case) {
            panic!("{name} does not collide with itself");
        }
    }
});
