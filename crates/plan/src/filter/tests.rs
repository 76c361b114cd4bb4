use super::*;
use proptest::prelude::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn spec(exclude: &[&str], include: &[&str]) -> FilterSpec {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    FilterSpec {
        exclude: owned(exclude),
        include: owned(include),
        ..FilterSpec::default()
    }
}

fn filter(exclude: &[&str], include: &[&str]) -> Filter {
    Filter::new(&spec(exclude, include)).unwrap()
}

fn file(size: u64, seconds: i64) -> Metadata {
    Metadata::bare(Kind::File, size, Timestamp::from_unix(seconds, 0))
}

#[track_caller]
fn assert_files(filter: &Filter, taken: &[&str], left: &[&str]) {
    for name in taken {
        assert!(filter.node(&path(name), &file(1, 0)), "{name} must be taken");
        assert!(!filter.excluded(&path(name), false), "{name}");
    }
    for name in left {
        assert!(!filter.node(&path(name), &file(1, 0)), "{name} must be left");
        assert!(filter.excluded(&path(name), false), "{name}");
    }
}

#[test]
fn case_may_be_ignored() {
    for (ignore_case, taken, left) in [
        (
            false,
            ["a.jpg", "CACHE/x"].as_slice(),
            ["b.JPG", "cache/x"].as_slice(),
        ),
        (true, &["a.png"], &["b.JPG", "a.jpg", "CACHE/x", "cache/x"]),
    ] {
        let spec = FilterSpec {
            ignore_case,
            ..spec(&["*.JPG", "cache/*"], &[])
        };
        assert_files(&Filter::new(&spec).unwrap(), taken, left);
    }
    let only = FilterSpec {
        ignore_case: true,
        ..spec(&[], &["*.Jpg"])
    };
    assert_files(&Filter::new(&only).unwrap(), &["a.jpg", "B.JPG"], &["a.png"]);
}

#[test]
fn excludes_drop_and_includes_bring_back() {
    let f = filter(&["*.o", "/build", "cache/", "doc/**/tmp"], &["keep.o"]);
    assert_files(
        &f,
        &["a.c", "keep.o", "x/keep.o", "x/build", "cache", "doc/a"],
        &[
            "a.o",
            "x/y/a.o",
            "build",
            "build/x",
            "x/cache/y",
            "doc/a/b/tmp",
            "build/keep.o",
        ],
    );
    assert!(!f.directory(&path("x/cache")));
    assert!(!f.directory(&path("build")));
    assert!(!f.directory(&path("build/deeper")));
    assert!(f.directory(&path("x")));
    assert!(f.directory(&RelPath::root()));
    assert!(!f.is_empty());
}

#[test]
fn excluding_all_and_including_some_takes_only_those() {
    let f = filter(&["*"], &["*/", "*.rs"]);
    assert_files(&f, &["a.rs", "x/y/b.rs"], &["a.c", "x/y/b.c"]);
    assert!(f.directory(&path("x/y")));
    let not_entered = filter(&["*"], &["*.rs"]);
    assert_files(&not_entered, &["a.rs"], &["x/b.rs"]);
    assert!(!not_entered.directory(&path("x")));
}

#[test]
fn includes_without_excludes_take_only_matches() {
    let f = filter(&[], &["*.rs", "doc/"]);
    assert_files(
        &f,
        &["a.rs", "x/b.rs", "doc/any/thing", "x/doc/y"],
        &["a.c", "x/b.c", "doc"],
    );
    assert!(f.directory(&path("x")), "a file below may match");
}

#[test]
fn names_are_bytes() {
    let f = filter(&["*.bak", "[!a-z]*"], &[]);
    let odd = RelPath::parse(b"x\xff\xfe.bak").unwrap();
    assert!(f.excluded(&odd, false));
    assert!(!f.excluded(&RelPath::parse(b"x\xff.txt").unwrap(), false));
    assert!(f.excluded(&RelPath::parse(b"new\nline.bak").unwrap(), false));
    let f = filter(&["#note", "a\\ b", "ü*"], &[]);
    assert_files(&f, &["note", "u"], &["#note", "a b", "übung"]);
}

#[test]
fn sizes_and_ages_apply_to_files_and_do_not_protect() {
    let f = Filter::new(&FilterSpec {
        size_min: Some(10),
        size_max: Some(20),
        newer_than: Some(Timestamp::from_unix(100, 0)),
        older_than: Some(Timestamp::from_unix(200, 0)),
        ..FilterSpec::default()
    })
    .unwrap();
    let name = path("f");
    for (size, seconds, taken) in [
        (10, 100, true),
        (20, 199, true),
        (9, 150, false),
        (21, 150, false),
        (15, 99, false),
        (15, 200, false),
    ] {
        assert_eq!(f.node(&name, &file(size, seconds)), taken, "{size} {seconds}");
    }
    assert!(!f.excluded(&name, false));
    assert!(f.node(&name, &Metadata::bare(Kind::Symlink, 1, Timestamp(0))));
    assert!(f.node(&name, &Metadata::bare(Kind::Directory, 0, Timestamp(0))));
    assert!(!f.is_empty());
}

#[test]
fn a_list_takes_the_paths_it_names() {
    let f = Filter::new(&FilterSpec {
        files_from: Some(vec![path("a/b/c"), path("dir"), path("x")]),
        exclude: vec!["*.o".to_owned()],
        ..FilterSpec::default()
    })
    .unwrap();
    assert_files(
        &f,
        &["a/b/c", "dir/any/thing", "x"],
        &["a/b/d", "a/c", "y", "dir/a.o"],
    );
    for (name, entered) in [
        ("a", true),
        ("a/b", true),
        ("a/c", false),
        ("dir/deep", true),
        ("y", false),
    ] {
        assert_eq!(f.directory(&path(name)), entered, "{name}");
        assert_eq!(f.excluded(&path(name), true), !entered, "{name}");
    }
    let alone = Filter::new(&FilterSpec {
        files_from: Some(vec![path("x")]),
        folders_alone: vec![RelPath::root(), path("dir/deep")],
        ..FilterSpec::default()
    })
    .unwrap();
    assert_files(&alone, &["x"], &["a", "dir/a", "dir/deep/a"]);
    for (name, entered) in [("dir/deep", true), ("dir", true), ("dir/deep/er", false)] {
        assert_eq!(alone.directory(&path(name)), entered, "{name}");
    }
    assert_eq!(alone.listed().collect::<Vec<_>>(), [path("x")]);
    let nothing = Filter::new(&FilterSpec {
        files_from: Some(Vec::new()),
        ..FilterSpec::default()
    })
    .unwrap();
    assert_files(&nothing, &[], &["a"]);
    assert!(nothing.directory(&RelPath::root()));
}

#[test]
fn an_error_names_the_faulty_option() {
    for (exclude, include) in [
        (vec!["a[z-b]"], vec![]),
        (vec![""], vec![]),
        (vec!["!a"], vec![]),
        (vec![], vec!["!a"]),
        (vec!["{a"], vec![]),
    ] {
        let error = Filter::new(&spec(&exclude, &include)).unwrap_err();
        let pattern = exclude.first().or(include.first()).unwrap();
        assert!(error.to_string().contains(&format!("{pattern:?}")), "{error}");
    }
    let range = FilterSpec {
        size_min: Some(2),
        size_max: Some(1),
        ..FilterSpec::default()
    };
    assert_eq!(
        Filter::new(&range).unwrap_err(),
        FilterError::SizeRange { min: 2, max: 1 }
    );
    assert!(Filter::default().is_empty());
    assert!(filter(&[], &[]).is_empty());
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("0", 0),
        ("4096", 4096),
        ("64K", 64 << 10),
        ("64k", 64 << 10),
        ("1.5M", 3 << 19),
        ("2GiB", 2 << 30),
        ("2 GiB", 2 << 30),
        ("1GB", 1_000_000_000),
        ("1T", 1 << 40),
        ("7B", 7),
        ("0.5P", 1 << 49),
    ] {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
    }
    for bad in [
        "",
        "K",
        "-1",
        "1.2.3",
        "1X",
        "1iB",
        "99999P",
        "18446744073709551616",
        "inf",
        "nan",
        "1e3",
    ] {
        assert_eq!(parse_size(bad), Err(FilterError::Size(bad.to_owned())));
    }
}

#[test]
fn ages_and_dates() {
    // 2026-01-10T00:00:00Z.
    let now = Timestamp::from_unix(1_768_003_200, 0);
    let hour = 3600;
    for (text, seconds) in [
        ("90s", 90),
        ("2h", 2 * hour),
        ("3d", 72 * hour),
        ("1w", 168 * hour),
        ("1d12h", 36 * hour),
        ("1.5h", 5400),
        ("2026-01-02", 192 * hour),
        ("2026-01-09T12:00", 12 * hour),
        ("2026-01-09T12:00:00Z", 12 * hour),
        ("2026-01-09T12:00:00+02:00", 14 * hour),
    ] {
        let moment = Timestamp::from_unix(1_768_003_200 - seconds, 0);
        assert_eq!(parse_age(text, now), Ok(moment), "{text}");
    }
    for bad in ["", "h", "3", "3x", "yesterday", "2026-13-01", "99999999999999y"] {
        assert_eq!(parse_age(bad, now), Err(FilterError::Age(bad.to_owned())));
    }
    let zone = jiff::tz::TimeZone::fixed(jiff::tz::offset(2));
    assert_eq!(
        parse_age_in("2026-01-10", now, &zone),
        Ok(Timestamp::from_unix(1_768_003_200 - 2 * hour, 0))
    );
}

#[test]
fn lists_of_files() {
    let list = parse_file_list(b"a/b\r\n./c\n\nd/\nodd \xff", false).unwrap();
    let names: Vec<&[u8]> = list.iter().map(RelPath::as_bytes).collect();
    assert_eq!(names, [b"a/b".as_slice(), b"c", b"d", b"odd \xff"]);
    let list = parse_file_list(b"new\nline\0.\0", true).unwrap();
    assert_eq!(list[0].as_bytes(), b"new\nline");
    assert!(list[1].is_root());
    for bad in ["ok\n/etc/passwd", "ok\na/../../b", "ok\n//"] {
        let error = parse_file_list(bad.as_bytes(), false).unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}

proptest! {
    #[test]
    fn nothing_panics(text in "\\PC{0,20}", bytes: Vec<u8>, zero: bool) {
        let _ = parse_size(&text);
        let _ = parse_age(&text, Timestamp(0));
        let _ = Filter::new(&spec(&[&text], &[]));
        let _ = Filter::new(&spec(&[], &[&text]));
        for path in parse_file_list(&bytes, zero).unwrap_or_default() {
            let _ = filter(&["*"], &["*/"]).excluded(&path, false);
        }
    }

    #[test]
    fn everything_in_an_excluded_folder_is_excluded(
        pattern in "[ab*/]{1,5}", parts in prop::collection::vec("[ab]{1,2}", 1..5),
    ) {
        if let Ok(filter) = Filter::new(&spec(&[&pattern], &["a"])) {
            let mut above = RelPath::root();
            let mut entered = true;
            for part in &parts {
                above = above.join(&ropeway_vfs::Name::new(part.as_bytes()).unwrap());
                prop_assert!(entered || !filter.directory(&above));
                entered = filter.directory(&above);
            }
        }
    }
}

#[test]
fn the_paths_of_a_list_are_known() {
    let spec = FilterSpec {
        files_from: Some(vec![path("a/b"), path("c")]),
        ..FilterSpec::default()
    };
    let filter = Filter::new(&spec).unwrap();
    let mut listed: Vec<RelPath> = filter.listed().collect();
    listed.sort();
    assert_eq!(listed, [path("a/b"), path("c")]);
    assert!(filter.is_listed(&path("c")) && !filter.is_listed(&path("a")) && !filter.is_listed(&path("c/d")));
    assert_eq!(Filter::default().listed().count(), 0);
}

#[test]
fn a_class_that_does_not_end_is_refused() {
    for pattern in ["[", "a[bc", "*.[ch"] {
        let spec = FilterSpec {
            exclude: vec![pattern.to_owned()],
            ..FilterSpec::default()
        };
        let error = Filter::new(&spec).unwrap_err();
        assert!(error.to_string().contains(pattern), "{error}");
    }
}
