//! Injects failures by rule, to test how a copy handles a failing device, server or tree.

use std::fmt;
use std::future::pending;
use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::text::{self, TextError};
use super::{Call, Done, Layer, Layered, Operation};
use crate::End;
use crate::{Clock, Error, ErrorKind, Op, RelPath, Result, Tree};

/// A tree that fails by rule.
pub type Faults = Layered<FaultLayer>;

impl Layered<FaultLayer> {
    /// Applies `rules` in front of `inner`. For each operation the first rule that fires decides.
    /// `clock` times the delays.
    pub fn new(inner: Arc<dyn Tree>, rules: Vec<FaultRule>, clock: Arc<dyn Clock>) -> Arc<Self> {
        let rules = rules
            .into_iter()
            .map(|rule| Mutex::new(Armed::new(rule)))
            .collect();
        Self::wrap(inner, FaultLayer { rules, clock })
    }

    /// Returns how often each rule has fired, in the order given.
    pub fn fired(&self) -> Vec<u32> {
        let rules = self.layer.rules.iter();
        rules.map(|rule| rule.lock().fired).collect()
    }
}

/// The nodes that a rule applies to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// This node.
    Exact(RelPath),
    /// Every node whose path contains these bytes.
    Contains(Vec<u8>),
}

/// How long an operation is delayed before it fails or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// This long.
    For(Duration),
    /// For ever: it never completes.
    Forever,
}

/// The error that a rule injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The error of the operating system with this errno.
    Errno(i32),
    /// An error of this kind, without one of the operating system.
    Kind(ErrorKind),
}

/// When to fail and how. All conditions must hold. The [`Default`] rule matches every operation and
/// does nothing.
///
/// As text (see [`FromStr`]): `[source.|target.]OPERATION:key=value,…` where OPERATION is a word of
/// [`Op`] (`read`, `write`, `create`, `rename`, …) or `any`. The keys are:
/// | key | meaning |
/// |---|---|
/// | `path` `contains` | this path; every path that contains this text |
/// | `offset` | touches these bytes: `65536..`, `4K..8K`, `..1M` |
/// | `after_bytes` | only after the matching operations asked for that many bytes |
/// | `nth` | only the n-th matching operation, from 1 |
/// | `times` | fires at most this many times |
/// | `probability` `seed` | fires at random, the same way for the same seed |
/// | `errno` `kind` | the error: `EIO` or a number; a kind such as `no_space` |
/// | `delay` | waits first: `200ms`, `forever` |
/// | `late` | `yes`: the operation is done, then fails as if its reply were lost |
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FaultRule {
    /// Applies to this end of a copy only; the caller selects rules with
    /// [`applies_to`](Self::applies_to).
    pub end: Option<End>,
    /// This operation; any if `None`.
    pub op: Option<Op>,
    /// This node; any if `None`.
    pub path: Option<PathMatch>,
    /// Only operations that touch these bytes.
    pub offset: Option<Range<u64>>,
    /// Only after the operations matched so far asked for this many bytes.
    pub after_bytes: Option<u64>,
    /// Only the n-th operation that matches all of the above, from 1.
    pub nth: Option<u64>,
    /// Fires with this probability (0 to 1), decided by `seed`.
    pub probability: Option<f64>,
    /// Seed of the random decisions.
    pub seed: u64,
    /// Fires at most this many times.
    pub times: Option<u32>,
    /// The error; the operation goes on if `None`.
    pub fault: Option<Fault>,
    /// Delay before the error or the operation.
    pub delay: Option<Delay>,
    /// Whether the operation is done first and the error replaces its result.
    pub late: bool,
}

impl FaultRule {
    /// Parses rules separated by `;`.
    ///
    /// # Errors
    /// A message that names the part that cannot be parsed.
    pub fn parse(text: &str) -> std::result::Result<Vec<Self>, TextError> {
        let rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty());
        rules.map(str::parse).collect()
    }

    /// Whether the rule applies to this end.
    pub fn applies_to(&self, end: End) -> bool {
        self.end.is_none_or(|own| own == end)
    }

    fn concerns(&self, call: &Call<'_>) -> bool {
        let path_fits = match &self.path {
            None => true,
            Some(wanted) => wanted.fits(call.path) || call.other.is_some_and(|other| wanted.fits(other)),
        };
        let range_fits = self.offset.as_ref().is_none_or(|range| {
            call.offset < range.end && call.offset.saturating_add(call.length.max(1)) > range.start
        });
        path_fits && range_fits && self.op.is_none_or(|op| op == call.action.op())
    }

    fn set(&mut self, key: &str, value: &str) -> std::result::Result<(), String> {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| format!("{key}={value}: not a number"))
        };
        match key {
            "path" => {
                let path = RelPath::parse(value.as_bytes());
                self.path = Some(PathMatch::Exact(path.ok_or_else(|| {
                    format!("\"{value}\" is not a path below the root (like a/b)")
                })?));
            }
            "contains" => self.path = Some(PathMatch::Contains(value.as_bytes().to_vec())),
            "offset" => self.offset = Some(parse_range(value)?),
            "after_bytes" => self.after_bytes = Some(text::bytes(value)?),
            "nth" => self.nth = Some(number()?),
            "seed" => self.seed = number()?,
            "times" => self.times = Some(u32::try_from(number()?).unwrap_or(u32::MAX)),
            "probability" => {
                let chance: Option<f64> = value.parse().ok().filter(|p| (0.0..=1.0).contains(p));
                self.probability = Some(chance.ok_or_else(|| format!("probability={value}: not in 0..1"))?);
            }
            "errno" => self.fault = Some(Fault::Errno(parse_errno(value)?)),
            "kind" => self.fault = Some(Fault::Kind(parse_word(value, "kind of error")?)),
            "delay" if value == "forever" => self.delay = Some(Delay::Forever),
            "delay" => self.delay = Some(Delay::For(text::duration(value)?)),
            "late" if value == "yes" => self.late = true,
            "late" => return Err(format!("late={value}: it can only be yes")),
            _ => return Err(format!("a fault rule has no \"{key}\"")),
        }
        Ok(())
    }
}

impl FromStr for FaultRule {
    type Err = TextError;

    fn from_str(rule: &str) -> std::result::Result<Self, TextError> {
        let (head, rest) = rule.split_once(':').unwrap_or((rule, ""));
        let (end, op) = match head.trim().split_once('.') {
            Some(("source", op)) => (Some(End::Source), op),
            Some(("target", op)) => (Some(End::Target), op),
            Some((end, _)) => return Err(format!("\"{end}\" is neither source nor target").into()),
            None => (None, head.trim()),
        };
        let op = match op {
            "any" => None,
            op => Some(parse_word(op, "operation")?),
        };
        let mut parsed = Self {
            end,
            op,
            ..Self::default()
        };
        for pair in text::pairs(rest) {
            let (key, value) = pair?;
            parsed.set(key, value)?;
        }
        if parsed.fault.is_none() && parsed.delay.is_none() {
            return Err(format!("\"{rule}\" says neither errno=, kind= nor delay=").into());
        }
        Ok(parsed)
    }
}

impl PathMatch {
    fn fits(&self, path: &RelPath) -> bool {
        match self {
            Self::Exact(wanted) => wanted == path,
            Self::Contains(part) => {
                part.is_empty() || path.as_bytes().windows(part.len()).any(|window| window == part)
            }
        }
    }
}

/// Parses `from..to` (either end may be missing) or one offset.
fn parse_range(text: &str) -> std::result::Result<Range<u64>, String> {
    let range = match text.split_once("..") {
        None => {
            let at = text::bytes(text)?;
            at..at.saturating_add(1)
        }
        Some((start, end)) => {
            let start = if start.is_empty() { 0 } else { text::bytes(start)? };
            start..if end.is_empty() {
                u64::MAX
            } else {
                text::bytes(end)?
            }
        }
    };
    if range.is_empty() {
        return Err(format!("\"{text}\" is an empty range"));
    }
    Ok(range)
}

/// Parses a word as serde spells it.
fn parse_word<T: serde::de::DeserializeOwned>(word: &str, what: &str) -> std::result::Result<T, String> {
    use serde::de::IntoDeserializer as _;
    let source: serde::de::value::StrDeserializer<'_, serde::de::value::Error> = word.into_deserializer();
    T::deserialize(source).map_err(|_| format!("\"{word}\" is no {what}"))
}

fn parse_errno(text: &str) -> std::result::Result<i32, String> {
    /// Names and numbers of errno on Linux (asm-generic/errno.h).
    const NAMES: [(&str, i32); 22] = [
        ("EPERM", 1),
        ("ENOENT", 2),
        ("EINTR", 4),
        ("EIO", 5),
        ("ENXIO", 6),
        ("EAGAIN", 11),
        ("ENOMEM", 12),
        ("EACCES", 13),
        ("EBUSY", 16),
        ("EEXIST", 17),
        ("ENODEV", 19),
        ("EMFILE", 24),
        ("EFBIG", 27),
        ("ENOSPC", 28),
        ("EROFS", 30),
        ("EMLINK", 31),
        ("ENAMETOOLONG", 36),
        ("EOPNOTSUPP", 95),
        ("ECONNRESET", 104),
        ("ETIMEDOUT", 110),
        ("ESTALE", 116),
        ("EDQUOT", 122),
    ];
    let named = NAMES
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, number)| *number);
    // Linux has errno values up to 4095 (MAX_ERRNO).
    let number = named.or_else(|| text.parse().ok().filter(|number| (1..=4095).contains(number)));
    number.ok_or_else(|| format!("\"{text}\" is no errno known here; give its number"))
}

/// The layer of [`Faults`].
pub struct FaultLayer {
    rules: Vec<Mutex<Armed>>,
    clock: Arc<dyn Clock>,
}

struct Armed {
    rule: FaultRule,
    matched: u64,
    bytes: u64,
    fired: u32,
    random: fastrand::Rng,
}

impl Armed {
    fn new(rule: FaultRule) -> Self {
        Self {
            matched: 0,
            bytes: 0,
            fired: 0,
            random: fastrand::Rng::with_seed(rule.seed),
            rule,
        }
    }

    /// Counts the call and decides whether the rule fires on it.
    fn fires(&mut self, call: &Call<'_>) -> bool {
        if !self.rule.concerns(call) {
            return false;
        }
        let before = self.bytes;
        self.bytes = self.bytes.saturating_add(call.length);
        if self.rule.after_bytes.is_some_and(|after| before < after) {
            return false;
        }
        self.matched += 1;
        let due = self.rule.nth.is_none_or(|nth| nth == self.matched)
            && self.rule.times.is_none_or(|times| self.fired < times)
            && self
                .rule
                .probability
                .is_none_or(|chance| self.random.f64() < chance);
        if due {
            self.fired = self.fired.saturating_add(1);
        }
        due
    }
}

/// What a rule that fires does to an operation.
struct Decided {
    delay: Option<Delay>,
    fault: Option<Fault>,
    late: bool,
}

impl Layer for FaultLayer {
    const ITEMWISE: bool = true;

    async fn around<'a, T: Send + 'a>(
        &'a self,
        call: Call<'a>,
        operation: Operation<'a, T>,
    ) -> Result<Done<T>> {
        let Some(Decided { delay, fault, late }) = self.decide(&call) else {
            return operation().await;
        };
        match delay {
            Some(Delay::Forever) => pending::<()>().await,
            Some(Delay::For(time)) => self.clock.sleep_until(self.clock.now() + time).await,
            None => {}
        }
        let Some(fault) = fault else {
            return operation().await;
        };
        if late {
            operation().await?;
        }
        let op = call.action.op();
        Err(match fault {
            Fault::Errno(errno) => Error::from_io(op, call.path, io::Error::from_raw_os_error(errno)),
            Fault::Kind(kind) => Error::new(op, call.path, kind),
        })
    }
}

impl FaultLayer {
    fn decide(&self, call: &Call<'_>) -> Option<Decided> {
        self.rules.iter().find_map(|rule| {
            let mut armed = rule.lock();
            armed.fires(call).then(|| Decided {
                delay: armed.rule.delay,
                fault: armed.rule.fault,
                late: armed.rule.late,
            })
        })
    }
}

impl fmt::Debug for FaultLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.rules.iter().map(|rule| rule.lock().rule.clone()))
            .finish()
    }
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;
