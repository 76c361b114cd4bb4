//! `--stacks-by`: operations grouped by size, path or process, each group divided into kinds.
//!
//! ```text
//! path               count   bytes   time  ██████░░░
//! /home/a/file       1,204   150 MB  2.1 s  read 1.9 s · write 0.2 s
//! ```

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::listing::heading;
use super::sums::{bytes_of, size_of};
use super::view::{View, actor, csv_field, one_line, short_time};
use crate::args::{StacksBy, ViewArgs};
use crate::trace_file::{Header, Operation};
use crate::ui::format;

/// Most groups that are kept at a time: some 30 MiB with long paths. When there are more, the half
/// that took the least time is summed as one.
const GROUPS_MAX: usize = 65_536;
/// Most kinds in a group; further ones of a foreign file count as the last one.
const KINDS_MAX: usize = 64;
/// Groups in the table without `-n`.
const SHOWN: usize = 30;
/// Width of the bar in the table.
const BAR_WIDTH: usize = 20;
/// Kinds in a line of the table.
const KINDS_SHOWN: usize = 4;

/// Totals of one kind in one group.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    count: u64,
    failed: u64,
    bytes: u64,
    total_ns: u64,
}

impl Total {
    fn add(&mut self, other: Total) {
        self.count += other.count;
        self.failed += other.failed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }
}

/// The kinds of one group; few, so a list is enough.
#[derive(Clone, Debug, Default)]
struct Group(Vec<(String, Total)>);

impl Group {
    fn add(&mut self, kind: &str, total: Total) {
        let found = self.0.iter().position(|(known, _)| known == kind);
        match found {
            Some(place) => self.0[place].1.add(total),
            None if self.0.len() < KINDS_MAX => self.0.push((kind.to_owned(), total)),
            None => self.0[KINDS_MAX - 1].1.add(total),
        }
    }

    fn whole(&self) -> Total {
        let mut whole = Total::default();
        for (_, total) in &self.0 {
            whole.add(*total);
        }
        whole
    }

    fn merge(&mut self, other: &Group) {
        for (kind, total) in &other.0 {
            self.add(kind, *total);
        }
    }
}

/// One kind of one group, for programs.
#[derive(Serialize)]
struct Row<'a> {
    by: &'a str,
    key: &'a str,
    kind: &'a str,
    count: u64,
    failed: u64,
    bytes: u64,
    seconds: f64,
}

/// Groups operations.
pub(super) struct Stacks<'a> {
    args: &'a ViewArgs,
    by: StacksBy,
    groups: HashMap<String, Group>,
    /// Groups for which there was no room.
    others: Group,
    others_count: usize,
    header: Header,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(args: &'a ViewArgs, by: StacksBy) -> Self {
        Self {
            args,
            by,
            groups: HashMap::new(),
            others: Group::default(),
            others_count: 0,
            header: Header::default(),
        }
    }

    fn word(&self) -> &'static str {
        match self.by {
            StacksBy::Size => "size",
            StacksBy::Path => "path",
            StacksBy::Process => "process",
        }
    }

    fn key(&self, operation: &Operation) -> String {
        match self.by {
            StacksBy::Size => size_class(size_of(operation)),
            StacksBy::Path => operation.path.clone(),
            StacksBy::Process => match actor(operation) {
                actor if actor.is_empty() => "-".to_owned(),
                actor => actor,
            },
        }
    }

    /// Sums the half of the groups that took the least time as one.
    fn shrink(&mut self) {
        let mut times: Vec<u64> = self.groups.values().map(|group| group.whole().total_ns).collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let bound = *median;
        let mut room = GROUPS_MAX / 2;
        let (others, others_count) = (&mut self.others, &mut self.others_count);
        self.groups.retain(|_, group| {
            let keep = group.whole().total_ns >= bound && room > 0;
            if keep {
                room -= 1;
            } else {
                others.merge(group);
                *others_count += 1;
            }
            keep
        });
    }

    /// Returns the groups, longest time first, and the sum of those that are left out.
    fn sorted(&self, most: usize) -> (Vec<(&str, &Group)>, Group, usize) {
        let mut groups: Vec<(&str, &Group)> = self
            .groups
            .iter()
            .map(|(key, group)| (key.as_str(), group))
            .collect();
        let order =
            |(key, group): &(&str, &Group)| (std::cmp::Reverse(group.whole().total_ns), (*key).to_owned());
        if self.by == StacksBy::Size {
            // By size: a histogram.
            groups.sort_by_key(|(key, _)| size_order(key));
        } else {
            groups.sort_by_cached_key(order);
        }
        let mut rest = self.others.clone();
        for (_, group) in groups.iter().skip(most) {
            rest.merge(group);
        }
        let count = self.others_count + groups.len().saturating_sub(most);
        groups.truncate(most);
        (groups, rest, count)
    }

    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        let most = self
            .args
            .limit
            .map_or(SHOWN, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (groups, rest, rest_count) = self.sorted(most);
        heading(&self.header, out)?;
        writeln!(
            out,
            "{:>11} {:>8} {:>11} {:>10}  {:BAR_WIDTH$}  {}",
            "count",
            "failed",
            "bytes",
            "time",
            "",
            self.word()
        )?;
        let rest_name = format!("({} more)", format::count(rest_count as u64));
        let rest = (rest_count > 0).then_some((rest_name.as_str(), &rest));
        let longest = groups
            .iter()
            .map(|(_, group)| group.whole().total_ns)
            .max()
            .unwrap_or(0);
        for (key, group) in groups.into_iter().chain(rest) {
            let whole = group.whole();
            writeln!(
                out,
                "{:>11} {:>8} {:>11} {:>10}  {:BAR_WIDTH$}  {}",
                format::count(whole.count),
                format::count(whole.failed),
                format::bytes(whole.bytes),
                short_time(whole.total_ns as f64),
                bar(whole.total_ns, longest),
                one_line(key)
            )?;
            writeln!(out, "{:66}{}", "", parts(group))?;
        }
        Ok(())
    }
}

impl View for Stacks<'_> {
    fn begin(&mut self, header: &Header, _out: &mut dyn Write) -> io::Result<()> {
        self.header = header.clone();
        Ok(())
    }

    fn take(&mut self, operation: &Operation, _out: &mut dyn Write) -> io::Result<()> {
        let key = self.key(operation);
        let total = Total {
            count: 1,
            failed: u64::from(operation.result < 0),
            bytes: bytes_of(operation),
            total_ns: operation.duration_ns,
        };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            self.shrink();
        }
        self.groups.entry(key).or_default().add(&operation.kind, total);
        Ok(())
    }

    fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !self.args.json && !self.args.csv {
            return self.table(out);
        }
        if self.args.csv {
            writeln!(out, "by,key,kind,count,failed,bytes,seconds")?;
        }
        let most = self
            .args
            .limit
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (groups, rest, rest_count) = self.sorted(most);
        let rest = (rest_count > 0).then_some(("(others)", &rest));
        for (key, group) in groups.into_iter().chain(rest) {
            for (kind, total) in &group.0 {
                let row = Row {
                    by: self.word(),
                    key,
                    kind,
                    count: total.count,
                    failed: total.failed,
                    bytes: total.bytes,
                    seconds: total.total_ns as f64 / 1e9,
                };
                if self.args.json {
                    serde_json::to_writer(&mut *out, &row)?;
                    writeln!(out)?;
                } else {
                    let Row {
                        by,
                        count,
                        failed,
                        bytes,
                        seconds,
                        ..
                    } = row;
                    let (key, kind) = (csv_field(key), csv_field(kind));
                    writeln!(out, "{by},{key},{kind},{count},{failed},{bytes},{seconds}")?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the kinds of a group, longest time first.
fn parts(group: &Group) -> String {
    let mut kinds: Vec<&(String, Total)> = group.0.iter().collect();
    kinds.sort_by(|a, b| b.1.total_ns.cmp(&a.1.total_ns).then_with(|| a.0.cmp(&b.0)));
    let shown = kinds.iter().take(KINDS_SHOWN).map(|(kind, total)| {
        let (kind, count) = (one_line(kind), format::count(total.count));
        format!("{kind} {count} in {}", short_time(total.total_ns as f64))
    });
    let mut text = shown.collect::<Vec<_>>().join(" · ");
    if kinds.len() > KINDS_SHOWN {
        text.push_str(" · …");
    }
    text
}

fn bar(part: u64, whole: u64) -> String {
    let share = part as f64 / whole.max(1) as f64;
    // At most the whole width.
    "█".repeat(((share * BAR_WIDTH as f64).ceil() as usize).min(BAR_WIDTH))
}

/// Returns the class of a size: the power of two that it does not exceed.
fn size_class(length: u64) -> String {
    match length {
        0 => "no size".to_owned(),
        length => match length.checked_next_power_of_two() {
            Some(power) => format!("up to {}", format::bytes(power)),
            None => "more than 8.0 EiB".to_owned(),
        },
    }
}

/// Returns the place of a size class in the list.
fn size_order(class: &str) -> u32 {
    (0..64)
        .find(|power| size_class(1 << power) == class)
        .map_or(if class == "no size" { 0 } else { 65 }, |power| power + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, duration_ns: u64) -> Operation {
        Operation {
            kind: "read".to_owned(),
            path: path.to_owned(),
            length: 4096,
            result: 100,
            duration_ns,
            ..Operation::default()
        }
    }

    #[test]
    fn sizes_are_in_order() {
        let sizes = [0, 1, 2, 512, 513, 4096, 1 << 20, 1 << 62];
        let orders: Vec<u32> = sizes.iter().map(|size| size_order(&size_class(*size))).collect();
        assert!(orders.windows(2).all(|pair| pair[0] < pair[1]), "{orders:?}");
        assert_eq!(size_class(4000), "up to 4.0 KiB");
        assert_eq!(size_class(u64::MAX), "more than 8.0 EiB");
    }

    #[test]
    fn very_many_paths_are_bounded_and_nothing_is_left_out() {
        let args = ViewArgs {
            json: true,
            ..ViewArgs::default()
        };
        let mut stacks = Stacks::new(&args, StacksBy::Path);
        let count = 2 * GROUPS_MAX + 7;
        for number in 0..count {
            let slow = u64::from(number % 100 == 0) * 1_000_000;
            stacks
                .take(&read(&format!("/{number}"), slow), &mut Vec::new())
                .unwrap();
            assert!(stacks.groups.len() <= GROUPS_MAX);
        }
        stacks
            .take(&read("/slow", 1_000_000_000), &mut Vec::new())
            .unwrap();
        let mut out = Vec::new();
        stacks.end(&mut out).unwrap();
        let rows: Vec<serde_json::Value> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(rows[0]["key"], "/slow");
        let sum: u64 = rows.iter().map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(sum, count as u64 + 1);
    }
}
