//! Views that fill the terminal: `top` and `check --tui`.
//!
//! [`run`] gives the terminal to an [`App`] and takes it back in every case: at its end, at a failure,
//! at a panic, and at SIGTERM. An app draws itself and handles keys; it never touches the terminal.

pub(crate) mod text;

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Modifier, Style};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, code};

/// Longest time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// Time that a view has to end after a signal. A terminal that is gone, or that takes no output, can
/// hold it up for ever.
const END_MAX: Duration = Duration::from_secs(2);

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A character.
    Char(char),
    /// Arrows.
    Up,
    /// See [`Up`](Self::Up).
    Down,
    /// See [`Up`](Self::Up).
    Left,
    /// See [`Up`](Self::Up).
    Right,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Confirm.
    Enter,
    /// Back.
    Esc,
    /// Delete the last character.
    Backspace,
    /// Next part.
    Tab,
}

/// Whether a view goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// It does.
    Continue,
    /// The user leaves it.
    Quit,
}

/// A view.
pub(crate) trait App {
    /// Draws everything.
    fn draw(&mut self, frame: &mut Frame<'_>);

    /// Handles a key.
    fn key(&mut self, key: Key) -> Flow;

    /// Called when time has passed, or something may have changed.
    fn tick(&mut self) -> Flow;
}

/// Colours, or none (no-color.org). What they say is never said by colour alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    has_colors: bool,
}

impl Theme {
    /// Returns the theme that the environment asks for.
    pub(crate) fn new() -> Self {
        Self {
            has_colors: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Returns a theme without colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { has_colors: false }
    }

    /// Text in a colour.
    pub(crate) fn paint(self, color: Color) -> Style {
        match self.has_colors {
            true => Style::default().fg(color),
            false => Style::default(),
        }
    }

    /// Headings.
    pub(crate) fn heading(self) -> Style {
        self.paint(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    /// What is chosen.
    pub(crate) fn chosen(self) -> Style {
        Style::default().add_modifier(Modifier::REVERSED)
    }

    /// What matters less.
    pub(crate) fn faint(self) -> Style {
        Style::default().add_modifier(Modifier::DIM)
    }

    /// Failures.
    pub(crate) fn bad(self) -> Style {
        self.paint(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Warnings, and what waits.
    pub(crate) fn warning(self) -> Style {
        self.paint(Color::Yellow).add_modifier(Modifier::BOLD)
    }
}

/// The terminal while a view has it. Never dropped itself: it would print an error to a terminal that
/// is gone, and panic.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        _ = self.0.show_cursor();
        _ = ratatui::try_restore();
    }
}

/// Fails if there is no terminal; `hint` says what to do instead.
///
/// # Errors
/// There is none.
pub(crate) fn need_terminal(what: &str, hint: &str) -> Result<(), Failure> {
    match io::stdin().is_terminal() && io::stdout().is_terminal() {
        true => Ok(()),
        false => Err(Failure::usage(format!("{what} needs a terminal")).hint(hint)),
    }
}

/// Gives the terminal to a view until the user leaves it. Returns the exit code.
///
/// # Errors
/// The terminal cannot be used.
pub(crate) fn run(app: &mut dyn App, tick: Duration) -> Result<u8, Failure> {
    let fault = |error: io::Error| {
        Failure::new(code::TARGET, format!("cannot use the terminal: {error}"))
            .hint("check TERM, or try another terminal")
    };
    let ended = Ended::default();
    let stop = stop_at_signals(Arc::clone(&ended.0)).map_err(fault)?;
    let mut screen = Screen(ManuallyDrop::new(ratatui::try_init().map_err(fault)?));
    let mut next_tick = Instant::now();
    loop {
        if stop.load(Ordering::Acquire) {
            return Ok(code::INTERRUPTED);
        }
        let mut changed = false;
        if Instant::now() >= next_tick {
            next_tick = Instant::now() + tick;
            if app.tick() == Flow::Quit {
                return Ok(code::DONE);
            }
            changed = true;
        }
        let wait = next_tick.saturating_duration_since(Instant::now()).min(LOOK);
        if is_gone(wait).map_err(fault)? {
            return Ok(code::INTERRUPTED);
        }
        // All keys that are there, before the next drawing.
        while event::poll(Duration::ZERO).map_err(fault)? {
            changed = true;
            match event::read().map_err(fault)? {
                Event::Key(key) if is_interrupt(&key) => return Ok(code::INTERRUPTED),
                Event::Key(key) => {
                    if let Some(key) = key_of(&key)
                        && app.key(key) == Flow::Quit
                    {
                        return Ok(code::DONE);
                    }
                }
                // The next drawing fits the new size.
                _ => {}
            }
        }
        if changed {
            screen.0.draw(|frame| app.draw(frame)).map_err(fault)?;
        }
    }
}

/// Waits for input. Returns whether the terminal is gone: crossterm reads on for ever then.
fn is_gone(wait: Duration) -> io::Result<bool> {
    let stdin = io::stdin();
    let timeout = Timespec {
        // At most LOOK.
        tv_sec: wait.as_secs() as i64,
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        // A resized terminal sends a signal.
        Ok(0) | Err(Errno::INTR) => Ok(false),
        Ok(_) => Ok(fds[0]
            .revents()
            .intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        Err(error) => Err(error.into()),
    }
}

/// Whether a view has ended: set on drop.
#[derive(Default)]
struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns a flag that SIGTERM, SIGINT and SIGHUP set. The process ends if its view does not end soon
/// after that.
fn stop_at_signals(ended: Arc<AtomicBool>) -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let mut caught = {
        let _inside = runtime.enter();
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let caught: io::Result<Vec<_>> = kinds.into_iter().map(signal).collect();
        caught?
    };
    let flag = Arc::clone(&stop);
    let thread = std::thread::Builder::new().name("signals".into());
    thread.spawn(move || {
        runtime.block_on(async {
            let any = caught.iter_mut().map(|signal| Box::pin(signal.recv()));
            futures_of_any(any.collect()).await;
        });
        flag.store(true, Ordering::Release);
        std::thread::sleep(END_MAX);
        if !ended.load(Ordering::Acquire) {
            // All that can be done for the terminal without writing to it.
            _ = ratatui::crossterm::terminal::disable_raw_mode();
            std::process::exit(i32::from(code::INTERRUPTED));
        }
    })?;
    Ok(stop)
}

/// Completes with the first of these.
async fn futures_of_any<F: Future + Unpin>(mut all: Vec<F>) {
    std::future::poll_fn(|context| {
        let ready = |one: &mut F| std::pin::Pin::new(one).poll(context).is_ready();
        match all.iter_mut().any(ready) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

fn is_interrupt(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

fn key_of(key: &KeyEvent) -> Option<Key> {
    let is_chord = key
        .modifiers
        .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SUPER);
    if key.kind == KeyEventKind::Release || is_chord {
        return None;
    }
    Some(match key.code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chords_are_no_keys() {
        let key = |code, modifiers| KeyEvent::new(code, modifiers);
        assert!(is_interrupt(&key(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!is_interrupt(&key(KeyCode::Char('c'), KeyModifiers::NONE)));
        assert_eq!(
            key_of(&key(KeyCode::Char('q'), KeyModifiers::NONE)),
            Some(Key::Char('q'))
        );
        assert_eq!(
            key_of(&key(KeyCode::Char('?'), KeyModifiers::SHIFT)),
            Some(Key::Char('?'))
        );
        assert_eq!(key_of(&key(KeyCode::Char('q'), KeyModifiers::ALT)), None);
        assert_eq!(key_of(&key(KeyCode::F(1), KeyModifiers::NONE)), None);
    }
}
