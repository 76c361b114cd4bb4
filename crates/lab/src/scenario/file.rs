//! Parses the TOML of a scenario.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use toml::Spanned;

use super::values::{self, Direction, Pair, Protection};
use super::{CELLS_MAX, NamedLink, ONCE_ABOVE, Scenario, ScenarioError};
use crate::link::{Congestion, Cut, LinkSpec, Rate, TcpSpec, parse_loss, parse_time, round_trip};
use crate::work::{SEED, Work};

/// Largest size of a file in bytes; the biggest shipped one has three thousand.
const FILE_MAX_BYTES: usize = 256 << 10;
/// Advice in every error.
const HINT: &str = "docs/lab.md explains every line; `ropeway lab list` shows the scenarios that ship";
/// Default number of runs: one that is discarded and two that count.
const RUNS: u32 = 3;
/// Default budget, which shipped scenarios do not exceed.
const BUDGET: Duration = Duration::from_secs(3 * 3600);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Word<Name>,
    title: Word<Title>,
    works: Spanned<Vec<Word<Work>>>,
    directions: Option<Vec<Word<Direction>>>,
    pairs: Spanned<Vec<Word<Pair>>>,
    runs: Option<Runs>,
    once_above: Option<Word<Time>>,
    budget: Option<Word<Budget>>,
    side_by_side: Option<Word<SideBySide>>,
    scale: Option<Scale>,
    #[serde(default)]
    scales: BTreeMap<Word<Work>, Scale>,
    seed: Option<u32>,
    limit: Option<Word<Time>>,
    #[serde(default)]
    ropeway_flags: Vec<String>,
    published: Option<Word<Publication>>,
    #[serde(default)]
    requests: bool,
    #[serde(default)]
    tcp: Tcp,
    link: Vec<Spanned<Link>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tcp {
    congestion: Option<Word<Congestion>>,
    congestion_open: Option<bool>,
    buffer: Option<Word<Size>>,
    window: Option<u32>,
    initcwnd: Option<u32>,
    ecn: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    name: Word<Name>,
    #[serde(default)]
    loopback: bool,
    protection: Option<Word<Protection>>,
    works: Option<Vec<Word<Work>>>,
    pairs: Option<Vec<Word<Pair>>>,
    rtt: Option<Word<Time>>,
    up_delay: Option<Word<Time>>,
    down_delay: Option<Word<Time>>,
    rate: Option<Word<Rate>>,
    down_rate: Option<Word<Rate>>,
    jitter: Option<Word<Time>>,
    loss: Option<Word<Loss>>,
    queue: Option<Word<Size>>,
    mtu: Option<u16>,
    seed: Option<u32>,
    #[serde(default)]
    cuts: Vec<CutTimes>,
    congestion: Option<Word<Congestion>>,
    congestion_open: Option<bool>,
    buffer: Option<Word<Size>>,
    window: Option<u32>,
    initcwnd: Option<u32>,
    ecn: Option<bool>,
}

/// A cut of a link, counted from the start of each run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CutTimes {
    at: Word<Time>,
    r#for: Option<Word<Time>>,
}

/// A text that `FromStr` parses.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Word<T>(T);

impl<'de, T: FromStr<Err = String>> Deserialize<'de> for Word<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<T: FromStr<Err = String>> Visitor<'_> for Reader<T> {
            type Value = Word<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(Word).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Reader(PhantomData))
    }
}

/// Defines a type that a function parses from text.
macro_rules! from_text {
    ($name:ident, $inner:ty, $parse:expr) => {
        #[derive(Clone)]
        struct $name($inner);

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let parse: fn(&str) -> Result<$inner, String> = $parse;
                parse(text).map(Self)
            }
        }
    };
}

from_text!(Name, String, values::name);
from_text!(Title, String, |text| match text.len() {
    1..=200 if !text.contains(char::is_control) => Ok(text.to_owned()),
    _ => Err("a title has one line of 1 to 200 bytes".to_owned()),
});
from_text!(Time, Duration, parse_time);
from_text!(Budget, Duration, |text| values::budget(parse_time(text)?));
from_text!(Loss, f64, parse_loss);
from_text!(Size, u64, |text| ropeway_plan::filter::parse_size(text)
    .map_err(|error| error.to_string()));
from_text!(SideBySide, Option<Rate>, |text| match text {
    "off" => Ok(None),
    _ => text.parse().map(Some),
});
from_text!(Publication, (), |text| match text {
    "tr3869" => Ok(()),
    _ => Err(format!("{text:?} is not known; there is tr3869")),
});

struct Runs(u32);

impl<'de> Deserialize<'de> for Runs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let runs = u32::deserialize(deserializer)?;
        values::runs(runs).map(Self).map_err(D::Error::custom)
    }
}

struct Scale(f64);

impl<'de> Deserialize<'de> for Scale {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let scale = f64::deserialize(deserializer)?;
        values::scale(scale).map(Self).map_err(D::Error::custom)
    }
}

/// Parses a file's text.
pub(super) fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let at = |offset: usize, message: String| ScenarioError {
        place: Some(format!(
            "{file}:{}",
            text.get(..offset).unwrap_or(text).matches('\n').count() + 1
        )),
        message,
        hint: HINT.to_owned(),
    };
    if text.len() > FILE_MAX_BYTES {
        return Err(at(0, format!("a scenario has at most {FILE_MAX_BYTES} bytes")));
    }
    let raw: File = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        at(offset, error.message().replace('\n', " "))
    })?;
    build(raw, &at)
}

fn build(raw: File, at: &dyn Fn(usize, String) -> ScenarioError) -> Result<Scenario, ScenarioError> {
    let (works_at, pairs_at) = (raw.works.span().start, raw.pairs.span().start);
    let works =
        distinct(raw.works.into_inner()).map_err(|message| at(works_at, format!("works: {message}")))?;
    let pairs =
        distinct(raw.pairs.into_inner()).map_err(|message| at(pairs_at, format!("pairs: {message}")))?;
    let directions = match raw.directions {
        None => Direction::ALL.to_vec(),
        Some(given) => distinct(given).map_err(|message| at(0, format!("directions: {message}")))?,
    };
    let mut links: Vec<NamedLink> = Vec::new();
    for link in raw.link {
        let place = link.span().start;
        let link = named_link(link.into_inner(), &raw.tcp, (&works, &pairs))
            .map_err(|message| at(place, message))?;
        if links.iter().any(|known| known.name == link.name) {
            return Err(at(place, format!("there are two links {:?}", link.name)));
        }
        links.push(link);
    }
    if links.is_empty() {
        return Err(at(0, "there is no [[link]]".to_owned()));
    }
    let scenario = Scenario {
        name: raw.name.0.0,
        title: raw.title.0.0,
        links,
        works,
        directions,
        pairs,
        runs: raw.runs.map_or(RUNS, |runs| runs.0),
        once_above: raw.once_above.map_or(ONCE_ABOVE, |time| time.0.0),
        budget: raw.budget.map_or(BUDGET, |budget| budget.0.0),
        side_by_side: raw.side_by_side.and_then(|rate| rate.0.0),
        scale: raw.scale.map_or(1.0, |scale| scale.0),
        scales: raw
            .scales
            .into_iter()
            .map(|(work, scale)| (work.0, scale.0))
            .collect(),
        seed: raw.seed.map_or(SEED, u64::from),
        published: raw.published.is_some(),
        requests: raw.requests,
        limit: raw.limit.map(|time| time.0.0),
        ropeway_flags: raw.ropeway_flags,
    };
    if scenario.cells() > CELLS_MAX {
        return Err(at(
            0,
            format!("{} cells are more than {CELLS_MAX}", scenario.cells()),
        ));
    }
    Ok(scenario)
}

fn distinct<T: PartialEq>(words: Vec<Word<T>>) -> Result<Vec<T>, String> {
    let mut kept: Vec<T> = Vec::new();
    for Word(word) in words {
        if kept.contains(&word) {
            return Err("the same twice".to_owned());
        }
        kept.push(word);
    }
    if kept.is_empty() {
        return Err("there must be one at least".to_owned());
    }
    Ok(kept)
}

fn named_link(link: Link, tcp: &Tcp, all: (&[Work], &[Pair])) -> Result<NamedLink, String> {
    let name = link.name.0.0.clone();
    link_of(link, tcp.clone(), all).map_err(|message| format!("link {name}: {message}"))
}

fn link_of(link: Link, tcp: Tcp, (all, all_pairs): (&[Work], &[Pair])) -> Result<NamedLink, String> {
    let name = link.name.0.0;
    let protection = link.protection.map(|word| word.0);
    let works = link.works.map(distinct).transpose();
    let works = works.map_err(|message| format!("works: {message}"))?;
    if let Some(odd) = works.iter().flatten().find(|work| !all.contains(work)) {
        return Err(format!("{} is not among the works", odd.name()));
    }
    let pairs = link.pairs.map(distinct).transpose();
    let pairs = pairs.map_err(|message| format!("pairs: {message}"))?;
    if let Some(odd) = pairs.iter().flatten().find(|pair| !all_pairs.contains(pair)) {
        return Err(format!("{odd} is not among the pairs"));
    }
    if link.loopback {
        if link.rate.is_some() || link.rtt.is_some() {
            return Err("the loopback has no rtt and no rate".to_owned());
        }
        return Ok(NamedLink {
            name,
            spec: LinkSpec::new(Duration::ZERO, None),
            loopback: true,
            protection,
            works,
            pairs,
        });
    }
    let Some(Word(rate)) = link.rate else {
        return Err("missing field `rate`".to_owned());
    };
    let time = |word: Option<Word<Time>>| word.map(|time| time.0.0);
    let (rtt, up_delay) = round_trip(time(link.rtt), time(link.up_delay), time(link.down_delay))?;
    let cuts = link.cuts.into_iter().map(|cut| Cut {
        at: cut.at.0.0,
        length: time(cut.r#for).unwrap_or(Cut::FOR_EVER),
    });
    let spec = LinkSpec {
        up_delay,
        jitter: link.jitter.map_or(Duration::ZERO, |time| time.0.0),
        loss: link.loss.map_or(0.0, |loss| loss.0.0),
        down: Some(link.down_rate.map_or(rate, |rate| rate.0)),
        queue: link.queue.map(|size| size.0.0),
        mtu: link.mtu.unwrap_or(1500),
        seed: link.seed.map_or(1, u64::from),
        cuts: cuts.collect(),
        tcp: TcpSpec {
            congestion: link.congestion.or(tcp.congestion).map(|word| word.0),
            congestion_open: link.congestion_open.or(tcp.congestion_open).unwrap_or(false),
            buffer_max_bytes: link.buffer.or(tcp.buffer).map(|size| size.0.0),
            window_max_bytes: link.window.or(tcp.window),
            initial_window: link.initcwnd.or(tcp.initcwnd),
            ecn: link.ecn.or(tcp.ecn).unwrap_or(false),
        },
        ..LinkSpec::new(rtt, Some(rate))
    };
    spec.check().map_err(|error| error.to_string())?;
    bounds(&spec.tcp)?;
    Ok(NamedLink {
        name,
        spec,
        loopback: false,
        protection,
        works,
        pairs,
    })
}

/// Checks values that the kernel would accept without obeying them.
fn bounds(tcp: &TcpSpec) -> Result<(), String> {
    let (window, initial) = (tcp.window_max_bytes, tcp.initial_window);
    let checks = [
        (
            tcp.buffer_max_bytes,
            4096..=1 << 30,
            "a buffer is between 4K and 1G",
        ),
        // Least: one segment. Most: [RFC 7323] 2.3, 30 bits.
        (
            window.map(u64::from),
            1460..=1 << 30,
            "a window is between 1460 bytes and 1G",
        ),
        (
            initial.map(u64::from),
            1..=1000,
            "initcwnd is between 1 and 1000 segments",
        ),
    ];
    for (value, allowed, message) in checks {
        if value.is_some_and(|value| !allowed.contains(&value)) {
            return Err(message.to_owned());
        }
    }
    Ok(())
}
