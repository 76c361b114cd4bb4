//! Keys and dialogs of `check --tui`.

use std::sync::Arc;

use parking_lot::Mutex;
use ratatui::Frame;

use super::list::Direction;
use super::view;
use super::work::{Activity, Shared, Worker};
use crate::tui::{App, Flow, Key, Theme};
use crate::ui::format;

/// Longest filter.
const FILTER_MAX: usize = 100;
/// Rows of one page.
const PAGE: isize = 20;

/// What the keys mean at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Choosing.
    Normal,
    /// Reading the help.
    Help,
    /// Typing a filter.
    Filter,
    /// Answering whether to copy.
    Copy(Direction, String),
    /// Answering whether to leave while something is under way.
    Leave,
}

/// What the app needs of the work behind it.
pub(super) trait Work {
    /// Returns what is shown.
    fn shared(&self) -> &Arc<Mutex<Shared>>;
    /// Returns the two ends for people.
    fn ends(&self) -> (String, String);
    /// Compares anew.
    fn compare(&self);
    /// Copies what is chosen.
    fn copy(&self, direction: Direction);
    /// Pauses or resumes what is under way, if something is.
    fn pause(&self) -> bool;
    /// Ends what is under way in order, if something is.
    fn stop(&self) -> bool;
    /// Waits for the end of what was stopped.
    fn wait(&self);
}

impl Work for Worker {
    fn shared(&self) -> &Arc<Mutex<Shared>> {
        self.shared()
    }

    fn ends(&self) -> (String, String) {
        self.ends()
    }

    fn compare(&self) {
        self.compare(None);
    }

    fn copy(&self, direction: Direction) {
        self.copy(direction);
    }

    fn pause(&self) -> bool {
        self.pause()
    }

    fn stop(&self) -> bool {
        self.stop()
    }

    fn wait(&self) {
        self.wait();
    }
}

/// The view.
pub(super) struct CheckApp<W> {
    work: W,
    theme: Theme,
    pub(super) mode: Mode,
    pub(super) notice: String,
}

impl<W: Work> CheckApp<W> {
    /// Makes the view.
    pub(super) fn new(work: W) -> Self {
        Self::with(work, Theme::new())
    }

    /// Makes the view with a theme.
    pub(super) fn with(work: W, theme: Theme) -> Self {
        Self {
            work,
            theme,
            mode: Mode::Normal,
            notice: String::new(),
        }
    }

    /// Returns the work, at the end.
    pub(super) fn into_worker(self) -> W {
        self.work
    }

    /// Returns the two ends for people.
    pub(super) fn ends(&self) -> (String, String) {
        self.work.ends()
    }

    /// Returns what is shown.
    pub(super) fn shared(&self) -> &Arc<Mutex<Shared>> {
        self.work.shared()
    }

    fn is_busy(&self) -> bool {
        let shared = self.shared().lock();
        matches!(shared.activity, Activity::Comparing(_) | Activity::Copying(_))
    }

    fn ask_copy(&mut self, direction: Direction) {
        if self.is_busy() {
            self.notice = "wait until it is done, or stop it with Esc".to_owned();
            return;
        }
        let (chosen, indices, bytes) = {
            let list = &self.shared().lock().list;
            let (indices, bytes) = list.copyable(direction);
            (list.chosen(), indices, bytes)
        };
        let (from, to) = match direction {
            Direction::Forward => ("source", "target"),
            Direction::Back => ("target", "source"),
        };
        self.notice = match (chosen, indices.len()) {
            (0, _) => "nothing is chosen; the space bar chooses".to_owned(),
            (_, 0) => format!("the {from} has nothing of what is chosen"),
            (_, count) => {
                let left_out = match chosen - count {
                    0 => String::new(),
                    rest => format!(" ({rest} not there)"),
                };
                let text = format!(
                    "copy {}, {} over what the {to} has{left_out}?",
                    format::counted(count as u64, "node", "nodes"),
                    format::bytes(bytes),
                );
                self.mode = Mode::Copy(direction, text);
                String::new()
            }
        };
    }

    fn pause(&mut self) {
        if !self.work.pause() {
            self.notice = "nothing is under way".to_owned();
        }
    }

    fn normal_key(&mut self, key: Key) -> Flow {
        let step = |by| self.work.shared().lock().list.step(by);
        match key {
            Key::Up | Key::Char('k') => step(-1),
            Key::Down | Key::Char('j') => step(1),
            Key::PageUp => step(-PAGE),
            Key::PageDown => step(PAGE),
            Key::Home => step(isize::MIN),
            Key::End => step(isize::MAX),
            Key::Char(' ') => self.shared().lock().list.toggle(),
            Key::Char('a') => self.shared().lock().list.choose_all(true),
            Key::Char('n') => self.shared().lock().list.choose_all(false),
            Key::Char('s') => self.shared().lock().list.next_sort(),
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char('>') | Key::Right => self.ask_copy(Direction::Forward),
            Key::Char('<') | Key::Left => self.ask_copy(Direction::Back),
            Key::Char('p') => self.pause(),
            Key::Char('r') => match self.is_busy() {
                true => self.notice = "wait until it is done, or stop it with Esc".to_owned(),
                false => self.work.compare(),
            },
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Esc => match self.work.stop() {
                true => self.notice = "stopping".to_owned(),
                false => self.notice = "q leaves".to_owned(),
            },
            Key::Char('q') if self.is_busy() => self.mode = Mode::Leave,
            Key::Char('q') => return Flow::Quit,
            _ => {}
        }
        Flow::Continue
    }

    fn filter_key(&mut self, key: Key) {
        let mut filter = self.shared().lock().list.filter().to_owned();
        match key {
            Key::Enter => return,
            Key::Esc => filter.clear(),
            Key::Backspace => {
                filter.pop();
                self.mode = Mode::Filter;
            }
            Key::Char(c) if filter.chars().count() < FILTER_MAX => {
                filter.push(c);
                self.mode = Mode::Filter;
            }
            _ => self.mode = Mode::Filter,
        }
        self.shared().lock().list.set_filter(&filter);
    }
}

impl<W: Work> App for CheckApp<W> {
    fn draw(&mut self, frame: &mut Frame<'_>) {
        view::draw(frame, self, self.theme);
    }

    fn key(&mut self, key: Key) -> Flow {
        self.notice.clear();
        match std::mem::replace(&mut self.mode, Mode::Normal) {
            Mode::Normal => return self.normal_key(key),
            Mode::Help => {}
            Mode::Filter => self.filter_key(key),
            Mode::Copy(direction, _) => match key {
                Key::Char('y' | 'Y') => self.work.copy(direction),
                _ => self.notice = "nothing was copied".to_owned(),
            },
            Mode::Leave => {
                if matches!(key, Key::Char('y' | 'Y')) {
                    self.work.stop();
                    self.work.wait();
                    return Flow::Quit;
                }
            }
        }
        Flow::Continue
    }

    fn tick(&mut self) -> Flow {
        self.shared().lock().list.refresh();
        Flow::Continue
    }
}

#[cfg(test)]
#[path = "app_tests.rs"]
mod tests;
