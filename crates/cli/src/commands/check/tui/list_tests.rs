use proptest::prelude::*;
use ropeway_vfs::Timestamp;

use super::*;

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn side(size: u64, seconds: i64) -> Side {
    Side {
        kind: Kind::File,
        size,
        modified: Timestamp::from_unix(seconds, 0),
        mode: None,
        owner: None,
    }
}

fn difference(name: &str, action: &'static str, source: Option<Side>, target: Option<Side>) -> Difference {
    Difference {
        path: path(name),
        target_path: path(name),
        action,
        source,
        target,
        reasons: Vec::new(),
    }
}

fn list() -> List {
    let folder = Side {
        kind: Kind::Directory,
        ..side(0, 0)
    };
    let mut list = List::default();
    list.add([
        difference("b/big", "differs", Some(side(9000, 5)), Some(side(10, 5))),
        difference("a/new", "missing", Some(side(20, 9)), None),
        difference("c/old", "extra", None, Some(side(30, 1))),
        difference("d", "missing", Some(folder), None),
        difference("e/mode", "attributes", Some(side(40, 2)), Some(side(40, 2))),
        difference("f/later", "differs", Some(side(5, 8)), Some(side(5, 7))),
        difference("g/rot", "differs", Some(side(5, 7)), Some(side(5, 7))),
    ]);
    list
}

fn shown(list: &List) -> Vec<String> {
    list.shown().map(|row| row.difference.path.to_string()).collect()
}

#[test]
fn reasons_are_found_from_both_sides() {
    let reasons: Vec<&str> = list().all().iter().map(|row| row.why).collect();
    assert_eq!(
        reasons,
        [
            "size",
            "missing",
            "extra",
            "missing",
            "attributes",
            "newer",
            "content"
        ]
    );
}

#[test]
fn rows_are_filtered_and_sorted() {
    let mut list = list();
    list.set_filter("MISSING");
    assert_eq!(shown(&list), ["a/new", "d"]);
    list.set_filter("b");
    assert_eq!(shown(&list), ["b/big"]);
    list.set_filter("");
    list.next_sort();
    assert_eq!(list.sort(), Sort::Path);
    assert_eq!(shown(&list)[0], "a/new");
    list.next_sort();
    list.next_sort();
    assert_eq!(shown(&list)[..2], ["b/big", "e/mode"], "by size");
    list.next_sort();
    assert_eq!(shown(&list)[..2], ["a/new", "f/later"], "by time");
}

#[test]
fn the_cursor_stays_on_its_row() {
    let mut list = list();
    list.step(5);
    assert_eq!(list.current().unwrap().difference.path, path("f/later"));
    list.set_filter("f/");
    assert_eq!((list.cursor(), shown(&list).len()), (0, 1));
    list.set_filter("");
    assert_eq!(list.cursor(), 5);
    list.set_filter("nothing");
    assert!(list.current().is_none());
    list.toggle();
    list.step(-3);
    assert_eq!(list.cursor(), 0);
}

#[test]
fn only_what_is_there_can_be_copied() {
    let mut list = list();
    list.choose_all(true);
    assert_eq!(list.chosen(), 7);
    let (forward, bytes) = list.copyable(Direction::Forward);
    assert_eq!((forward, bytes), (vec![0, 1, 3, 4, 5, 6], 9030));
    let (back, bytes) = list.copyable(Direction::Back);
    assert_eq!((back, bytes), (vec![0, 2, 4, 5, 6], 50));
    list.choose_all(false);
    assert_eq!(list.chosen(), 0);
}

#[test]
fn each_row_gets_its_fate() {
    let mut list = list();
    list.choose_all(true);
    let (indices, _) = list.copyable(Direction::Forward);
    list.begin(&indices);
    let failures = [(path("d/deep/x"), "no space".to_owned())];
    list.end((Direction::Forward, &indices), &failures, None, &BTreeSet::new());
    assert_eq!(
        list.all()[3].fate,
        Fate::Failed("no space".into()),
        "a failure inside a folder"
    );
    assert_eq!(list.all()[0].fate, Fate::Copied(Direction::Forward));
    assert_eq!(list.all()[2].fate, Fate::Untouched);
    assert_eq!((list.left(), list.chosen()), (2, 2), "what failed stays chosen");
}

#[test]
fn a_copy_that_was_stopped_copied_what_it_says() {
    let mut list = list();
    list.choose_all(true);
    let (indices, _) = list.copyable(Direction::Forward);
    list.begin(&indices);
    let done = BTreeSet::from([path("b/big"), path("d")]);
    list.end((Direction::Forward, &indices), &[], Some("interrupted"), &done);
    assert_eq!(list.all()[0].fate, Fate::Copied(Direction::Forward));
    assert_eq!(list.all()[1].fate, Fate::Failed("interrupted".into()));
    assert_eq!(
        list.all()[3].fate,
        Fate::Failed("interrupted".into()),
        "a folder may be half copied"
    );
}

#[test]
fn the_list_is_bounded() {
    let mut list = List::default();
    let many = (0..ROWS_MAX + 5).map(|number| difference(&format!("f{number}"), "extra", None, None));
    list.add(many);
    assert_eq!(
        (list.all().len(), list.more(), list.total()),
        (ROWS_MAX, 5, ROWS_MAX as u64 + 5)
    );
    list.clear();
    assert_eq!((list.total(), list.cursor()), (0, 0));
}

proptest! {
    #[test]
    fn the_cursor_is_always_on_a_row(steps in proptest::collection::vec((0_u8..6, -9_isize..9, "[a-h/]{0,2}"), 0..40)) {
        let mut list = list();
        for (what, by, filter) in steps {
            match what {
                0 => list.step(by),
                1 => list.set_filter(&filter),
                2 => list.next_sort(),
                3 => list.toggle(),
                4 => list.choose_all(by > 0),
                _ => list.add([difference("z", "extra", None, Some(side(1, 1)))]),
            }
            prop_assert!(list.cursor() < list.shown().len().max(1));
            prop_assert!(list.chosen() <= list.all().len());
        }
    }
}
