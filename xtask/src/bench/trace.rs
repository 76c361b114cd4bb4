//! `cargo xtask bench trace`: what recording costs.
//!
//! Two tables of `docs/trace.md`, both measured in memory (tmpfs), so that no disk hides the cost:
//!
//! * **own**: copies, and copies from a server, with and without `--trace`;
//! * **others**: programs alone, recorded by `trace --run`, and listed by strace.
//!
//! The ways to run take turns, another one first in each round, and each round is judged by itself: the
//! figure is the median of the rounds' ratios. The first round warms up and is not counted.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ropeway_lab::report::Median;
use ropeway_peers::RopewayServe;
use tempfile::TempDir;

use super::tables::{self, machine_line};
use crate::process::{check_interrupt, find_program, run as run_command};
use crate::workspace::Workspace;

/// What our own runs may cost at most.
const OWN_MAX: f64 = 0.02;
/// What a recording may slow a program, as a part of what strace slows it.
const OTHERS_MAX: f64 = 0.1;
/// Files of the tree that is copied, and bytes of each.
const FILES: u64 = 40_000;
const FILE_BYTES: usize = 4 << 10;
const BIG_BYTES: u64 = 1 << 30;
/// Files in a folder.
const IN_FOLDER: u64 = 400;
const PASSWORD: &str = "only-for-this-benchmark";

/// Options of `bench trace`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Counted rounds; one more goes first and is not counted, unless this is 1
    #[arg(long, default_value_t = 11)]
    runs: u32,
    /// Only this table: own or others
    #[arg(long, value_parser = ["own", "others"])]
    only: Option<String>,
    /// A twentieth of the work, one round: shows that it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Measure this build of ropeway instead of a release build, and do not touch docs/trace.md
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// Programs and folders of the benchmark.
struct Bench {
    ropeway: PathBuf,
    place: TempDir,
    /// Counted rounds, with one more in front unless there is only one.
    rounds: std::ops::RangeInclusive<u32>,
    /// What the works are divided by.
    part: u64,
}

/// A row: the same work in several ways, the plain one first.
struct Row<'a> {
    name: String,
    ways: Vec<Box<dyn Fn() -> Command + 'a>>,
}

/// Measures both tables.
///
/// # Errors
/// A program is missing or fails, there is no room in memory, or an interrupt came.
pub(super) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    ensure!(arguments.runs > 0, "--runs must be at least 1");
    let memory = Path::new("/dev/shm");
    ensure!(memory.is_dir(), "there is no /dev/shm to measure in");
    let runs = if arguments.quick { 1 } else { arguments.runs };
    let bench = Bench {
        ropeway: crate::step::ropeway(workspace, arguments.binary.as_deref())?,
        place: tempfile::Builder::new()
            .prefix("ropeway-bench-trace-")
            .tempdir_in(memory)?,
        rounds: u32::from(runs == 1)..=runs,
        part: if arguments.quick { 20 } else { 1 },
    };
    let wanted = |name: &str| arguments.only.as_deref().is_none_or(|only| only == name);
    let mut sections = Vec::new();
    if wanted("own") {
        sections.push(("bench trace own", bench.own()?));
    }
    if wanted("others") {
        sections.push(("bench trace others", bench.others()?));
    }
    for (name, text) in &sections {
        println!("\n{text}");
        if arguments.quick || arguments.binary.is_some() {
            println!("docs/trace.md is not changed: it was a trial, or --binary was given");
        } else {
            tables::write_to(workspace, "docs/trace.md", name, text)?;
        }
    }
    Ok(())
}

impl Bench {
    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Returns a command without the caller's settings.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.place.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", self.place.path())
            .env("ROPEWAY_PASSWORD", PASSWORD);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Makes a tree of small files.
    fn tree(&self, name: &str, files: u64) -> Result<()> {
        let mut content = vec![0; FILE_BYTES];
        for number in 0..files {
            let folder = self.path(name).join(format!("d{:03}", number / IN_FOLDER));
            if number % IN_FOLDER == 0 {
                fs::create_dir_all(&folder)?;
            }
            fastrand::Rng::with_seed(number).fill(&mut content);
            fs::write(folder.join(format!("f{number}")), &content)?;
        }
        Ok(())
    }

    /// Returns the seconds of each way in each counted round.
    fn measure(&self, row: &Row<'_>) -> Result<Vec<Vec<f64>>> {
        let count = row.ways.len();
        let mut measured = vec![Vec::new(); count];
        for round in self.rounds.clone() {
            for turn in 0..count {
                check_interrupt()?;
                let way = (turn + round as usize) % count;
                let target = self.path("target");
                if target.exists() {
                    fs::remove_dir_all(&target)?;
                }
                let mut command = row.ways[way]();
                let begun = Instant::now();
                let output = command.output()?;
                let took = begun.elapsed().as_secs_f64();
                ensure!(
                    output.status.success(),
                    "{}: {command:?} failed: {}",
                    row.name,
                    String::from_utf8_lossy(&output.stderr)
                );
                if round > 0 {
                    measured[way].push(took);
                }
            }
        }
        let last = |way: &Vec<f64>| way.last().map_or(0.0, |seconds| seconds * 1e3);
        let last: Vec<String> = measured.iter().map(|way| format!("{:.1}", last(way))).collect();
        println!("  {:50} last round: {} ms", row.name, last.join(", "));
        Ok(measured)
    }

    /// What `--trace` costs our own runs.
    fn own(&self) -> Result<String> {
        let files = FILES / self.part;
        self.tree("small", files)?;
        let big = self.path("big");
        fs::create_dir_all(&big)?;
        let mut file = fs::File::create(big.join("one"))?;
        let content = vec![0x5a; 1 << 20];
        for _ in 0..(BIG_BYTES / self.part) >> 20 {
            std::io::Write::write_all(&mut file, &content)?;
        }
        drop(file);
        let copy = |source: String, traced: bool| {
            let mut command = self.command(&self.ropeway);
            command.args(["copy", "--quiet", "-T"]);
            command.args(traced.then_some(["--trace", "trace"]).into_iter().flatten());
            command.arg(source).arg("target");
            command
        };
        let mut text = self.head("own");
        text.push_str("\n| run | without | with `--trace` | more |\n|---|--:|--:|--:|\n");
        let works = [
            ("small", format!("{files} files of 4 KiB")),
            (
                "big",
                format!("one file of {} MiB", (BIG_BYTES / self.part) >> 20),
            ),
        ];
        for (work, title) in &works {
            let ways: Vec<Box<dyn Fn() -> Command + '_>> = vec![
                Box::new(|| copy((*work).to_owned(), false)),
                Box::new(|| copy((*work).to_owned(), true)),
            ];
            let name = format!("`copy`, {title}");
            self.own_line(&mut text, Row { name, ways })?;
        }
        // Both servers run all the time, and are used in turns.
        let serve = |flags: &[&str]| {
            let server = RopewayServe::new(&self.ropeway)
                .user("ann", PASSWORD)
                .flags(flags);
            server.read_only_share("data", self.place.path()).start()
        };
        let trace = self.path("served");
        let trace = trace.to_str().context("the folder has a strange name")?;
        let (plain, traced) = (serve(&[])?, serve(&["--trace", trace])?);
        for (work, title) in &works {
            let url = |port: u16| format!("smb://ann@127.0.0.1:{port}/data/{work}");
            let ways: Vec<Box<dyn Fn() -> Command + '_>> = vec![
                Box::new(|| copy(url(plain.address().port()), false)),
                Box::new(|| copy(url(traced.address().port()), false)),
            ];
            let name = format!("`serve`, a copy from it: {title}");
            self.own_line(&mut text, Row { name, ways })?;
        }
        Ok(text)
    }

    fn own_line(&self, text: &mut String, row: Row<'_>) -> Result<()> {
        let measured = self.measure(&row)?;
        let [plain, traced] = &measured[..] else {
            unreachable!("a row of our own has two ways");
        };
        let more: Vec<f64> = plain
            .iter()
            .zip(traced)
            .map(|(one, two)| two / one - 1.0)
            .collect();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} |",
            row.name,
            milliseconds(plain),
            milliseconds(traced),
            percent(Median::of(more))
        );
        Ok(())
    }

    /// What a recording costs other programs, beside strace.
    fn others(&self) -> Result<String> {
        let strace = find_program("strace").context("strace is missing")?;
        self.tree("tree", 800)?;
        self.repository(5000 / self.part)?;
        let blocks = format!("count={}", 20_000 / self.part);
        let commands: [(&str, Vec<&str>); 4] = [
            (
                "`dd` of blocks of 4 KiB",
                vec!["dd", "if=/dev/zero", "of=blocks", "bs=4k", &blocks, "status=none"],
            ),
            ("`rsync -a` of 800 files", vec!["rsync", "-a", "tree/", "target/"]),
            ("`cp -r` of 800 files", vec!["cp", "-r", "tree", "target"]),
            (
                "`git status` in a tree of 5,000 files",
                vec!["git", "-C", "git", "status"],
            ),
        ];
        let mut text = self.head("others");
        let version = tables::version(&strace)?;
        let _ = writeln!(
            text,
            "\n{version}, `-f -o FILE`.\n\n| program | alone | `trace -o FILE --run` | strace | slowdown, of strace's \
             |\n|---|--:|--:|--:|--:|"
        );
        for (name, words) in &commands {
            let Some(program) = find_program(words[0]) else {
                println!("skipped: {} is missing", words[0]);
                continue;
            };
            let by = |before: &Path, flags: &[&str]| {
                let mut command = self.command(before);
                command.args(flags).arg(&program).args(&words[1..]);
                command
            };
            let ways: Vec<Box<dyn Fn() -> Command + '_>> = vec![
                Box::new(|| {
                    let mut command = self.command(&program);
                    command.args(&words[1..]);
                    command
                }),
                Box::new(|| by(&self.ropeway, &["trace", "-o", "trace", "--run"])),
                Box::new(|| by(&strace, &["-f", "-o", "strace"])),
            ];
            let name = (*name).to_owned();
            self.others_line(&mut text, Row { name, ways })?;
        }
        Ok(text)
    }

    fn others_line(&self, text: &mut String, row: Row<'_>) -> Result<()> {
        let measured = self.measure(&row)?;
        let [alone, recorded, listed] = &measured[..] else {
            unreachable!("a row of another program has three ways");
        };
        let rounds = alone.iter().zip(recorded).zip(listed);
        let parts = rounds.map(|((alone, recorded), listed)| (recorded - alone) / (listed - alone));
        let part = Median::of(parts.collect());
        let part = part.map_or_else(
            || "-".to_owned(),
            |part| {
                let bold = if part.value <= OTHERS_MAX { "**" } else { "" };
                format!(
                    "{bold}{:.2}{bold} ({:.2}-{:.2})",
                    part.value, part.least, part.most
                )
            },
        );
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {part} |",
            row.name,
            milliseconds(alone),
            milliseconds(recorded),
            milliseconds(listed)
        );
        Ok(())
    }

    /// Makes a repository whose files are all committed.
    fn repository(&self, files: u64) -> Result<()> {
        self.tree("git", files)?;
        let git = find_program("git").context("git is missing")?;
        let commit = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"];
        for words in [&["init", "-q", "."][..], &["add", "-A"], &commit, &["status"]] {
            run_command(self.command(&git).arg("-C").arg(self.path("git")).args(words))?;
        }
        Ok(())
    }

    fn head(&self, only: &str) -> String {
        let mut text = machine_line(&format!("cargo xtask bench trace --only {only}"));
        let counted = self.rounds.clone().filter(|round| *round > 0).count();
        let _ = writeln!(
            text,
            "\nMilliseconds from start to end, files in memory: median (least-most) of {counted} interleaved rounds. The \
             last column is the median (least-most) of the rounds' own."
        );
        text
    }
}

fn milliseconds(seconds: &[f64]) -> String {
    tables::spread(
        Median::of(seconds.iter().map(|seconds| seconds * 1e3).collect()),
        0,
    )
}

/// Formats what a run costs more, in bold type if it is little enough.
fn percent(more: Option<Median>) -> String {
    match more {
        None => "-".to_owned(),
        Some(more) => {
            let bold = if more.value <= OWN_MAX { "**" } else { "" };
            format!(
                "{bold}{:+.1} %{bold} ({:+.1} to {:+.1} %)",
                more.value * 100.0,
                more.least * 100.0,
                more.most * 100.0
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_bold() {
        let of = |values: &[f64]| percent(Median::of(values.to_vec()));
        assert_eq!(of(&[0.01, -0.02, 0.03]), "**+1.0 %** (-2.0 to +3.0 %)");
        assert_eq!(of(&[0.021]), "+2.1 % (+2.1 to +2.1 %)");
        assert_eq!(of(&[]), "-");
    }
}
