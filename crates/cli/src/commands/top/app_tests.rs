use std::cell::RefCell;
use std::rc::Rc;

use ropeway_live::model::{Job, Server};

use super::*;

/// Processes that are there, and what was asked of them.
#[derive(Clone, Default)]
struct Fixed {
    rows: Rc<RefCell<Vec<Row>>>,
    sent: Rc<RefCell<Vec<(u32, Request)>>>,
}

impl Processes for Fixed {
    fn rows(&self) -> Vec<Row> {
        self.rows.borrow().clone()
    }

    fn left_out(&self) -> Vec<String> {
        Vec::new()
    }

    fn send(&self, address: &Address, request: Request, _: String) {
        self.sent.borrow_mut().push((address.pid, request));
    }

    fn notice(&self) -> Option<Notice> {
        None
    }
}

fn row(pid: u32, snapshot: Snapshot) -> Row {
    let mut row = Row::new(Address {
        folder: "/run/user/0/ropeway".into(),
        name: format!("{pid}.sock"),
        pid,
        uid: 0,
    });
    row.snapshot = Some(Arc::new(snapshot));
    row.state = State::Alive;
    row
}

fn copying() -> Snapshot {
    let mut job = Job {
        bwlimit: "20M".into(),
        ..Job::default()
    };
    job.controls.bwlimit = true;
    Snapshot {
        jobs: vec![job],
        ..Snapshot::default()
    }
}

fn serving() -> Snapshot {
    let session = |id: &str| Session {
        id: id.into(),
        user: "ann".into(),
        ..Session::default()
    };
    Snapshot {
        servers: vec![Server {
            sessions: vec![session("1"), session("2")],
            ..Server::default()
        }],
        ..Snapshot::default()
    }
}

fn app() -> (TopApp<Fixed>, Fixed) {
    let fixed = Fixed::default();
    fixed.rows.borrow_mut().extend([
        row(10, copying()),
        row(20, serving()),
        row(30, Snapshot::default()),
    ]);
    let mut app = TopApp::with(fixed.clone(), Theme::plain());
    app.tick();
    (app, fixed)
}

fn press(app: &mut TopApp<Fixed>, keys: &[Key]) {
    for key in keys {
        assert_eq!(app.key(*key), Flow::Continue, "{key:?}");
        app.tick();
    }
}

fn chosen(app: &TopApp<Fixed>) -> Option<u32> {
    app.chosen_row().map(|row| row.address.pid)
}

#[test]
fn the_choice_follows_its_process() {
    let (mut app, fixed) = app();
    assert_eq!(chosen(&app), Some(10));
    press(&mut app, &[Key::Down]);
    assert_eq!(chosen(&app), Some(20));
    fixed.rows.borrow_mut().remove(0);
    app.tick();
    assert_eq!(chosen(&app), Some(20), "others come and go");
    fixed.rows.borrow_mut().remove(0);
    app.tick();
    assert_eq!(chosen(&app), Some(30), "the next one takes its place");
    fixed.rows.borrow_mut().clear();
    app.tick();
    assert_eq!(chosen(&app), None);
    press(
        &mut app,
        &[
            Key::Down,
            Key::Up,
            Key::End,
            Key::Char('p'),
            Key::Char('c'),
            Key::Char('x'),
        ],
    );
    assert!(fixed.sent.borrow().is_empty() && app.notice.is_some());
}

#[test]
fn a_job_is_paused_resumed_and_limited() {
    let (mut app, fixed) = app();
    press(&mut app, &[Key::Char('p'), Key::Char('r'), Key::Char('b')]);
    assert_eq!(app.mode, Mode::Rate("20M".into()));
    press(
        &mut app,
        &[
            Key::Backspace,
            Key::Backspace,
            Key::Char('5'),
            Key::Char('K'),
            Key::Enter,
        ],
    );
    press(&mut app, &[Key::Char('b')]);
    press(&mut app, &[Key::Backspace; 3]);
    press(&mut app, &[Key::Enter]);
    press(&mut app, &[Key::Char('b'), Key::Esc]);
    let bwlimit = |value: &str| Request::Bwlimit {
        value: value.into(),
        job: None,
    };
    let sent: Vec<Request> = fixed
        .sent
        .borrow()
        .iter()
        .map(|(_, request)| request.clone())
        .collect();
    assert_eq!(
        sent,
        [
            Request::Pause { job: None },
            Request::Resume { job: None },
            bwlimit("25K"),
            bwlimit("off")
        ]
    );
}

#[test]
fn what_ends_something_is_asked_before() {
    let (mut app, fixed) = app();
    press(&mut app, &[Key::Char('c')]);
    let Mode::Confirm(question) = &app.mode else {
        panic!("{:?}", app.mode);
    };
    assert!(question.text.contains("10"), "{}", question.text);
    press(&mut app, &[Key::Char('n')]);
    assert!(fixed.sent.borrow().is_empty());
    press(&mut app, &[Key::Char('c'), Key::Char('y')]);
    press(
        &mut app,
        &[Key::Down, Key::Right, Key::Right, Key::Char('x'), Key::Char('y')],
    );
    let close = Request::CloseSession { id: "2".into() };
    assert_eq!(*fixed.sent.borrow(), [(10, Request::Cancel), (20, close)]);
}

#[test]
fn what_has_no_job_is_not_paused() {
    let (mut app, fixed) = app();
    press(&mut app, &[Key::End, Key::Char('p'), Key::Char('b')]);
    assert!(fixed.sent.borrow().is_empty() && app.notice.is_some());
    press(&mut app, &[Key::Char('?')]);
    assert_eq!(app.mode, Mode::Help);
    press(&mut app, &[Key::Char('q')]);
    assert_eq!(app.mode, Mode::Normal, "any key leaves the help");
    assert_eq!(app.key(Key::Char('q')), Flow::Quit);
}
