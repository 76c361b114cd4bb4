//! What is chosen, and what the keys do.

use std::sync::Arc;

use ratatui::Frame;
use ropeway_live::client::Address;
use ropeway_live::model::{Session, Snapshot};
use ropeway_live::protocol::Request;

use super::collect::{Notice, Processes, Row, State};
use super::view;
use crate::tui::{App, Flow, Key, Theme};

/// Longest rate that can be typed. A guess: a timetable of a week fits.
const RATE_MAX: usize = 100;
/// Rows of one page.
const PAGE: usize = 10;

/// What the keys mean at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Choosing.
    Normal,
    /// Reading the help.
    Help,
    /// Typing a rate.
    Rate(String),
    /// Answering a question.
    Confirm(Question),
}

/// A question, and what yes means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) text: String,
    address: Address,
    request: Request,
    what: String,
}

/// The view.
pub(super) struct TopApp<P> {
    processes: P,
    theme: Theme,
    pub(super) rows: Vec<Row>,
    pub(super) left_out: Vec<String>,
    pub(super) notice: Option<Notice>,
    pub(super) mode: Mode,
    /// The chosen process.
    chosen: Option<Address>,
    /// Index of the chosen session of its server.
    pub(super) session: usize,
}

impl<P: Processes> TopApp<P> {
    /// Makes the view.
    pub(super) fn new(processes: P) -> Self {
        Self::with(processes, Theme::new())
    }

    /// Makes the view with a theme.
    pub(super) fn with(processes: P, theme: Theme) -> Self {
        Self {
            processes,
            theme,
            rows: Vec::new(),
            left_out: Vec::new(),
            notice: None,
            mode: Mode::Normal,
            chosen: None,
            session: 0,
        }
    }

    /// Returns the index of the chosen process.
    pub(super) fn chosen_index(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        self.rows.iter().position(|row| row.address == *chosen)
    }

    /// Returns the row of the chosen process.
    pub(super) fn chosen_row(&self) -> Option<&Row> {
        self.rows.get(self.chosen_index()?)
    }

    /// Returns the last snapshot of the chosen process.
    fn snapshot(&self) -> Option<&Arc<Snapshot>> {
        self.chosen_row()?.snapshot.as_ref()
    }

    fn chosen_session(&self) -> Option<&Session> {
        let server = self.snapshot()?.servers.first()?;
        server.sessions.get(self.session)
    }

    fn refresh(&mut self) {
        let before = self.chosen_index();
        self.rows = self.processes.rows();
        self.left_out = self.processes.left_out();
        if let Some(notice) = self.processes.notice() {
            self.notice = Some(notice);
        }
        if self.chosen_index().is_none() {
            // The next one takes the place of one that is gone.
            let at = before.unwrap_or(0).min(self.rows.len().saturating_sub(1));
            self.choose(at);
        }
        let sessions = self.snapshot().and_then(|snapshot| snapshot.servers.first());
        let count = sessions.map_or(0, |server| server.sessions.len());
        self.session = self.session.min(count.saturating_sub(1));
    }

    fn choose(&mut self, index: usize) {
        let chosen = self.rows.get(index).map(|row| row.address.clone());
        if chosen != self.chosen {
            self.chosen = chosen;
            self.session = 0;
        }
    }

    fn step(&mut self, by: isize) {
        let last = self.rows.len().saturating_sub(1);
        let now = self.chosen_index().unwrap_or(0);
        self.choose(now.saturating_add_signed(by).min(last));
    }

    fn say(&mut self, text: &str) {
        self.notice = Some(Notice {
            is_error: true,
            text: text.to_owned(),
        });
    }

    /// Asks the chosen process for something that concerns its jobs.
    fn send_job(&mut self, request: Request, what: &str) {
        let Some(row) = self.chosen_row() else {
            return self.say("no process is chosen");
        };
        match &row.snapshot {
            Some(snapshot) if snapshot.has_job() => {
                self.processes.send(&row.address, request, what.to_owned());
            }
            _ => self.say("this process has no job"),
        }
    }

    fn ask_cancel(&mut self) {
        let Some(row) = self.chosen_row().filter(|row| row.state != State::Ended) else {
            return self.say("no running process is chosen");
        };
        let command = row
            .snapshot
            .as_ref()
            .map_or("process", |snapshot| &snapshot.process.command);
        self.mode = Mode::Confirm(Question {
            text: format!("end {command} {} as Ctrl-C does?", row.address.pid),
            address: row.address.clone(),
            request: Request::Cancel,
            what: "is stopping".to_owned(),
        });
    }

    fn ask_close_session(&mut self) {
        let (Some(row), Some(session)) = (self.chosen_row(), self.chosen_session()) else {
            return self.say("no session is chosen");
        };
        let user = match session.user.is_empty() {
            true => "an anonymous user",
            false => &session.user,
        };
        let client = session.clients.first().map_or("?", String::as_str);
        self.mode = Mode::Confirm(Question {
            text: format!("end the session of {user} at {client}?"),
            address: row.address.clone(),
            request: Request::CloseSession {
                id: session.id.clone(),
            },
            what: format!("the session of {user} is ended"),
        });
    }

    fn ask_rate(&mut self) {
        let job = self.snapshot().and_then(|snapshot| snapshot.jobs.first());
        let Some(job) = job else {
            return self.say("this process has no job");
        };
        self.mode = match job.controls.bwlimit {
            true => Mode::Rate(job.bwlimit.chars().take(RATE_MAX).collect()),
            false => return self.say("this job takes no bandwidth limit"),
        };
    }

    fn normal_key(&mut self, key: Key) -> Flow {
        match key {
            Key::Char('q') | Key::Esc => return Flow::Quit,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Up | Key::Char('k') => self.step(-1),
            Key::Down | Key::Char('j') | Key::Tab => self.step(1),
            Key::PageUp => self.step(-(PAGE as isize)),
            Key::PageDown => self.step(PAGE as isize),
            Key::Home => self.choose(0),
            Key::End => self.choose(self.rows.len().saturating_sub(1)),
            Key::Left => self.session = self.session.saturating_sub(1),
            // `refresh` keeps it below the number of sessions.
            Key::Right => self.session = self.session.saturating_add(1),
            Key::Char('p') => self.send_job(Request::Pause { job: None }, "paused"),
            Key::Char('r') => self.send_job(Request::Resume { job: None }, "goes on"),
            Key::Char('b') => self.ask_rate(),
            Key::Char('c') => self.ask_cancel(),
            Key::Char('x') => self.ask_close_session(),
            _ => {}
        }
        Flow::Continue
    }

    fn rate_key(&mut self, mut rate: String, key: Key) {
        match key {
            Key::Esc => {}
            Key::Enter => {
                let value = match rate.trim() {
                    "" => "off".to_owned(),
                    rate => rate.to_owned(),
                };
                let what = format!("--bwlimit {value}");
                self.send_job(Request::Bwlimit { value, job: None }, &what);
            }
            Key::Backspace => {
                rate.pop();
                self.mode = Mode::Rate(rate);
            }
            Key::Char(c) if rate.chars().count() < RATE_MAX => {
                rate.push(c);
                self.mode = Mode::Rate(rate);
            }
            _ => self.mode = Mode::Rate(rate),
        }
    }
}

impl<P: Processes> App for TopApp<P> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        view::draw(frame, self, self.theme);
    }

    fn key(&mut self, key: Key) -> Flow {
        // What was said is read by now.
        self.notice = None;
        match std::mem::replace(&mut self.mode, Mode::Normal) {
            Mode::Normal => return self.normal_key(key),
            Mode::Help => {}
            Mode::Rate(rate) => self.rate_key(rate, key),
            Mode::Confirm(question) => match key {
                Key::Char('y' | 'Y') => {
                    self.processes
                        .send(&question.address, question.request, question.what);
                }
                _ => self.say("nothing was done"),
            },
        }
        Flow::Continue
    }

    fn tick(&mut self) -> Flow {
        self.refresh();
        Flow::Continue
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
