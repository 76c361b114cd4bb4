use std::cell::RefCell;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ropeway_copy::{CheckOutcome, CheckWatch, Difference, Side};
use ropeway_vfs::{Kind, RelPath, Timestamp};

use super::*;

/// Work that only notes what it is asked for.
#[derive(Default)]
struct Noted {
    shared: Arc<Mutex<Shared>>,
    asked: RefCell<Vec<String>>,
}

impl Work for Noted {
    fn shared(&self) -> &Arc<Mutex<Shared>> {
        &self.shared
    }

    fn ends(&self) -> (String, String) {
        ("/srv/photos".to_owned(), "smb://ann@nas/photos".to_owned())
    }

    fn compare(&self) {
        self.asked.borrow_mut().push("compare".to_owned());
    }

    fn copy(&self, direction: Direction) {
        self.asked.borrow_mut().push(format!("copy {direction:?}"));
    }

    fn pause(&self) -> bool {
        false
    }

    fn stop(&self) -> bool {
        let is_busy = matches!(self.shared.lock().activity, Activity::Comparing(_));
        self.asked.borrow_mut().push("stop".to_owned());
        is_busy
    }

    fn wait(&self) {
        self.asked.borrow_mut().push("wait".to_owned());
    }
}

fn difference(path: &str, action: &'static str, sizes: (Option<u64>, Option<u64>)) -> Difference {
    let path = RelPath::parse(path.as_bytes()).unwrap();
    let side = |size| Side {
        kind: Kind::File,
        size,
        modified: Timestamp::from_unix(1_700_000_000, 0),
        mode: None,
        owner: None,
    };
    Difference {
        target_path: path.clone(),
        path,
        action,
        source: sizes.0.map(side),
        target: sizes.1.map(side),
        reasons: Vec::new(),
    }
}

fn app() -> CheckApp<Noted> {
    let work = Noted::default();
    work.shared.lock().list.add([
        difference("2024/beach.jpg", "differs", (Some(5 << 20), Some(1 << 20))),
        difference("2024/new.jpg", "missing", (Some(3 << 20), None)),
        difference("old\u{1b}[2J.jpg", "extra", (None, Some(7))),
    ]);
    CheckApp::with(work, Theme::plain())
}

fn press(app: &mut CheckApp<Noted>, keys: &[Key]) -> Flow {
    let mut flow = Flow::Continue;
    for key in keys {
        flow = app.key(*key);
    }
    flow
}

fn drawn(app: &mut CheckApp<Noted>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn both_sides_are_shown() {
    let mut app = app();
    press(&mut app, &[Key::Char(' ')]);
    let text = drawn(&mut app, 120, 24);
    for part in [
        "/srv/photos ⇄ smb://ann@nas/photos",
        "3 differences · 3 shown · 1 chosen",
        "[x] 2024/beach.jpg",
        "size",
        "5.0 MiB",
        "1.0 MiB",
        "2023-11-1",
        "missing",
        "old\\x1b[2J.jpg",
        "q quit",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let small = drawn(&mut app, 80, 24);
    assert!(small.contains("5.0 MiB") && !small.contains("2023-"), "{small}");
}

#[test]
fn a_copy_is_asked_before() {
    let mut app = app();
    press(&mut app, &[Key::Char('>')]);
    assert!(app.notice.contains("nothing is chosen"));
    press(&mut app, &[Key::Char('a'), Key::Char('>')]);
    let Mode::Copy(Direction::Forward, text) = &app.mode else {
        panic!("{:?}", app.mode);
    };
    assert!(
        text.contains("copy 2 nodes, 8.0 MiB over what the target has (1 not there)"),
        "{text}"
    );
    press(&mut app, &[Key::Char('n')]);
    assert!(app.work.asked.borrow().is_empty());
    press(&mut app, &[Key::Char('a'), Key::Char('>'), Key::Char('y')]);
    press(&mut app, &[Key::Char('<'), Key::Char('y')]);
    assert_eq!(*app.work.asked.borrow(), ["copy Forward", "copy Back"]);
}

#[test]
fn a_filter_is_typed() {
    let mut app = app();
    press(
        &mut app,
        &[Key::Char('/'), Key::Char('n'), Key::Char('e'), Key::Enter],
    );
    assert_eq!(app.mode, Mode::Normal);
    assert_eq!(app.shared().lock().list.shown().len(), 1);
    press(&mut app, &[Key::Char('/'), Key::Backspace, Key::Esc]);
    assert_eq!(app.shared().lock().list.shown().len(), 3);
}

#[test]
fn leaving_is_asked_while_something_is_under_way() {
    let mut app = app();
    app.shared().lock().activity = Activity::Comparing(CheckWatch::new());
    assert_eq!(press(&mut app, &[Key::Char('q')]), Flow::Continue);
    assert_eq!(app.mode, Mode::Leave);
    assert_eq!(press(&mut app, &[Key::Char('n')]), Flow::Continue);
    press(&mut app, &[Key::Char('>'), Key::Char('r')]);
    assert!(app.notice.contains("wait"), "{}", app.notice);
    assert_eq!(press(&mut app, &[Key::Char('q'), Key::Char('y')]), Flow::Quit);
    assert_eq!(*app.work.asked.borrow(), ["stop", "wait"]);
    app.shared().lock().activity = Activity::Compared(CheckOutcome::default());
    assert_eq!(press(&mut app, &[Key::Char('q')]), Flow::Quit);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_panics_at_any_size(
        // The backend of tests cannot print a width of 0.
        width in 1_u16..240,
        height in 0_u16..60,
        paths in proptest::collection::vec("[a-z\u{202e}\u{7}ü☃]{1,60}", 0..40),
        sizes in any::<(Option<u64>, Option<u64>)>(),
        presses in proptest::collection::vec(0_usize..12, 0..12),
    ) {
        const KEYS: [Key; 12] = [
            Key::Down, Key::Up, Key::End, Key::Char(' '), Key::Char('a'), Key::Char('s'), Key::Char('/'),
            Key::Char('x'), Key::Enter, Key::Char('>'), Key::Char('?'), Key::Char('p'),
        ];
        let mut app = app();
        app.shared().lock().list.add(paths.iter().map(|path| difference(path, "differs", sizes)));
        let keys: Vec<Key> = presses.into_iter().map(|key| KEYS[key]).collect();
        press(&mut app, &keys);
        drawn(&mut app, width, height);
    }
}
