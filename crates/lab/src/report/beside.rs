//! Clients of the past, measured beside the seconds that were published for them.

use std::collections::HashMap;
use std::iter;

use super::model::{CellKey, Document, Median};
use super::numbers;
use super::text::exact;

/// The client that is ropeway with its own engine.
const OWN: &str = "ropeway";

/// The table and what it says.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Beside {
    /// Heads: the place, then a client each.
    pub(super) heads: Vec<String>,
    /// A row for each link, work and direction: `55.1 / 84 = 0.66`.
    pub(super) rows: Vec<Vec<String>>,
    /// Medians by client, and whether the published order holds.
    pub(super) sentences: Vec<String>,
}

/// Measured and published seconds of one client.
#[derive(Clone, Copy, Debug)]
struct Both {
    measured: f64,
    published: f64,
}

impl Both {
    fn ratio(self) -> f64 {
        self.measured / self.published
    }
}

/// Meaning of the cells.
pub(super) const MEANING: &str =
    "Measured seconds / published seconds = their ratio; the last column is ropeway with its own engine.";

/// Most rows and clients; a document may come from anywhere.
const ROWS_MAX: usize = 200;
const CLIENTS_MAX: usize = 12;

/// Link, work and direction.
type Place<'a> = [&'a str; 3];

fn place(key: &CellKey) -> Place<'_> {
    [&key.link, &key.work, &key.direction]
}

/// The figures of a document by place.
struct Figures<'a> {
    clients: Vec<&'a str>,
    /// In the order of the document.
    places: Vec<Place<'a>>,
    both: HashMap<(Place<'a>, &'a str), Both>,
    /// The best seconds of ropeway's own engine.
    own: HashMap<Place<'a>, f64>,
}

impl<'a> Figures<'a> {
    fn of(doc: &'a Document) -> Self {
        let mut published: HashMap<(Place<'_>, &str), f64> = HashMap::new();
        for figure in &doc.published {
            if figure.seconds.is_finite() && figure.seconds > 0.0 {
                let place: Place<'_> = [&figure.link, &figure.work, &figure.direction];
                // The first figure is that of the earliest table.
                published.entry((place, &figure.client)).or_insert(figure.seconds);
            }
        }
        let mut figures = Self {
            clients: Vec::new(),
            places: Vec::new(),
            both: HashMap::new(),
            own: HashMap::new(),
        };
        for cell in &doc.cells {
            let (here, client) = (place(&cell.key), cell.key.client.as_str());
            let Some(measured) = cell.seconds().map(|median| median.value) else {
                continue;
            };
            if client == OWN {
                let best = figures.own.entry(here).or_insert(measured);
                *best = best.min(measured);
            } else if let Some(published) = published.get(&(here, client)) {
                let published = *published;
                figures.add(here, client, Both { measured, published });
            }
        }
        figures
    }

    fn add(&mut self, place: Place<'a>, client: &'a str, both: Both) {
        if self.both.insert((place, client), both).is_some() {
            return;
        }
        if self.clients.len() < CLIENTS_MAX && !self.clients.contains(&client) {
            self.clients.push(client);
        }
        if self.places.len() < ROWS_MAX && !self.places.contains(&place) {
            self.places.push(place);
        }
    }

    fn row(&self, place: Place<'_>) -> Vec<Option<Both>> {
        let both = |client: &&str| self.both.get(&(place, *client)).copied();
        self.clients.iter().map(both).collect()
    }
}

/// Compares; `None` if no client was published.
pub(super) fn beside(doc: &Document) -> Option<Beside> {
    let figures = Figures::of(doc);
    if figures.places.is_empty() {
        return None;
    }
    let heads = figures.clients.iter().map(|client| numbers::name(client));
    let mut table = Beside {
        heads: iter::once("link, work, direction".to_owned())
            .chain(heads)
            .chain([OWN.to_owned()])
            .collect(),
        ..Beside::default()
    };
    let (mut in_order, mut comparable) = (0, 0);
    for place in &figures.places {
        let (found, ours) = (figures.row(*place), figures.own.get(place).copied());
        if let Some(holds) = order(&found, ours) {
            comparable += 1;
            in_order += usize::from(holds);
        }
        let mut row = vec![numbers::name(&place.join(", "))];
        row.extend(found.iter().map(|both| both.map_or("–".to_owned(), shown)));
        row.push(ours.map_or("–".to_owned(), numbers::number));
        table.rows.push(row);
    }
    let clients = figures.clients.iter();
    table
        .sentences
        .extend(clients.filter_map(|client| ratios(&figures, client)));
    if comparable > 0 {
        let own = match figures.own.is_empty() {
            true => "",
            false => ", with ropeway as the fastest,",
        };
        table.sentences.push(format!(
            "The order of the published clients{own} holds in {in_order} of {comparable}."
        ));
    }
    Some(table)
}

/// Says how long a client took beside its published times.
fn ratios(figures: &Figures<'_>, client: &str) -> Option<String> {
    let both = figures
        .places
        .iter()
        .filter_map(|place| figures.both.get(&(*place, client)));
    let median = Median::of(both.map(|both| both.ratio()).collect())?;
    Some(format!(
        "{}: {} the published time in the median of {}, from {} to {}.",
        numbers::name(client),
        numbers::factor(median.value),
        numbers::counted(median.number, "cell", "cells"),
        numbers::factor(median.least),
        numbers::factor(median.most)
    ))
}

/// Whether the clients are in the published order, and ropeway is faster than all of them. `None` without two to
/// compare. Clients that were published as equal may be in any order.
fn order(found: &[Option<Both>], ours: Option<f64>) -> Option<bool> {
    let mut known: Vec<Both> = found.iter().flatten().copied().collect();
    if known.len() < 2 {
        return None;
    }
    known.sort_by(|a, b| b.published.total_cmp(&a.published));
    let follows = |pair: &[Both]| match pair {
        [slower, faster] => slower.published <= faster.published || slower.measured > faster.measured,
        _ => true,
    };
    let fastest = |ours: f64| known.iter().all(|both| both.measured > ours);
    Some(known.windows(2).all(follows) && ours.is_none_or(fastest))
}

fn shown(both: Both) -> String {
    format!(
        "{} / {} = {}",
        numbers::number(both.measured),
        exact(both.published),
        numbers::number(both.ratio())
    )
}

#[cfg(test)]
mod tests {
    use super::super::model::{Cell, Outcome, Published, Run};
    use super::*;

    fn cell(client: &str, seconds: f64) -> Cell {
        Cell {
            key: CellKey::new(["l", "w", "read", client, "smbd"]),
            runs: vec![Run::of(String::new(), Outcome::Done, seconds)],
            ..Cell::default()
        }
    }

    fn document(measured: [f64; 3], ours: f64) -> Document {
        let clients = ["xp", "seven", "eight"];
        let figures = clients.iter().zip([100.0, 20.0, 20.0]);
        Document {
            cells: clients
                .iter()
                .zip(measured)
                .map(|(client, seconds)| cell(client, seconds))
                .chain([cell("ropeway", ours), cell("other", 1.0)])
                .collect(),
            published: figures
                .map(|(client, seconds)| Published {
                    source: "paper".to_owned(),
                    link: "l".to_owned(),
                    work: "w".to_owned(),
                    direction: "read".to_owned(),
                    client: (*client).to_owned(),
                    server: "filer".to_owned(),
                    seconds,
                })
                .collect(),
            ..Document::default()
        }
    }

    #[test]
    fn cells_stand_beside_the_published_seconds() {
        let table = beside(&document([50.0, 10.0, 30.0], 5.0)).unwrap();
        assert_eq!(
            table.heads,
            ["link, work, direction", "xp", "seven", "eight", "ropeway"]
        );
        assert_eq!(
            table.rows,
            [[
                "l, w, read",
                "50.0 / 100 = 0.500",
                "10.0 / 20 = 0.500",
                "30.0 / 20 = 1.50",
                "5.00"
            ]]
        );
        assert_eq!(table.sentences.len(), 4, "{:?}", table.sentences);
        assert!(
            table.sentences[3].ends_with("holds in 1 of 1."),
            "equal ones may be in any order"
        );
    }

    #[test]
    fn another_order_is_told() {
        for (measured, ours) in [([9.0, 10.0, 10.0], 5.0), ([50.0, 10.0, 10.0], 10.5)] {
            let table = beside(&document(measured, ours)).unwrap();
            assert!(table.sentences[3].ends_with("holds in 0 of 1."), "{table:?}");
        }
        assert_eq!(beside(&Document::default()), None);
    }
}
