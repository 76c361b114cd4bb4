//! `cargo xtask layers`: keeps the crates in their tiers.
//!
//! [`rules`] holds the tiers as data and judges what a manifest declares. [`scan`] finds words in
//! sources that only some places may use. [`circles`] finds modules that use each other. [`docs`]
//! keeps the table in `CONTRIBUTING.md` equal to the data. Dev-dependencies and code under
//! `#[cfg(test)]` are exempt from all rules but that of `unsafe`.

mod circles;
mod docs;
mod rules;
mod scan;

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::step::Outcome;
use crate::workspace::{Workspace, rust_sources};
use circles::Graph;
use rules::{Manifest, Tier};
use scan::ModulePath;

/// Options of `layers`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Arguments {
    /// Write the table of tiers in CONTRIBUTING.md
    #[arg(long)]
    write: bool,
    /// Print every circle of files
    #[arg(long)]
    circles: bool,
}

/// Prints the table and checks it.
///
/// # Errors
/// A rule is broken; the message names every broken rule.
pub(crate) fn run(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let (crates, mut broken) = look(workspace)?;
    print_table(&crates);
    for line in &crates {
        if arguments.circles {
            for circle in &line.circles {
                println!(
                    "{}: circle of {}: {}",
                    line.manifest.name,
                    circle.len(),
                    circle.join(", ")
                );
            }
        }
        match too_big(line) {
            Some((text, true)) => broken.push(text),
            Some((text, false)) => println!("warning: {text}"),
            None => {}
        }
    }
    let names: Vec<&str> = crates.iter().map(|line| line.manifest.name.as_str()).collect();
    broken.extend(docs::check(workspace, &names, arguments.write)?);
    if !broken.is_empty() {
        bail!("{} broken:\n  {}", rule_count(broken.len()), broken.join("\n  "));
    }
    println!("every rule is kept");
    Ok(())
}

/// Checks the rules as a step of `ci`.
///
/// # Errors
/// As [`run`].
pub(crate) fn step(workspace: &Workspace) -> Result<Outcome> {
    run(workspace, &Arguments::default())?;
    Ok(Outcome::passed("every rule is kept"))
}

fn rule_count(count: usize) -> String {
    if count == 1 {
        "1 rule is".to_owned()
    } else {
        format!("{count} rules are")
    }
}

/// One line of the table.
struct Line {
    manifest: Manifest,
    unsafe_files: usize,
    circles: Vec<Vec<String>>,
}

/// Returns the message about a circle that is bigger than allowed, and whether that is an error.
fn too_big(line: &Line) -> Option<(String, bool)> {
    let name = &line.manifest.name;
    let (max, is_error) = rules::circles(name)?;
    let circle = line.circles.first().filter(|circle| circle.len() > max)?;
    let text = format!(
        "{name}: {} files use each other in a circle, at most {max} may: {}",
        circle.len(),
        circle.join(", ")
    );
    Some((text, is_error))
}

fn look(workspace: &Workspace) -> Result<(Vec<Line>, Vec<String>)> {
    let mut lines = Vec::new();
    let mut broken = Vec::new();
    for folder in workspace.members()? {
        let path = folder.join("Cargo.toml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest =
            Manifest::parse(&text).with_context(|| format!("in {}", workspace.short(&path).display()))?;
        broken.extend(rules::judge(&manifest));
        let mut unsafe_files = 0;
        let mut graph = Graph::default();
        for source in rust_sources(&folder)? {
            let inside = source.strip_prefix(&folder).unwrap_or(&source);
            let findings = look_into(&manifest, &source, inside)?;
            unsafe_files += usize::from(!findings.unsafe_lines.is_empty());
            if let Ok(below) = inside.strip_prefix("src") {
                graph.add(below, findings.module_paths);
            }
            let shown = workspace.short(&source).display();
            broken.extend(
                findings
                    .broken
                    .iter()
                    .map(|(line, rule)| format!("{shown}:{line}: {rule}")),
            );
        }
        lines.push(Line {
            manifest,
            unsafe_files,
            circles: graph.circles(),
        });
    }
    lines.sort_by_key(|line| (line.manifest.tier(), rules::rank(&line.manifest.name)));
    Ok((lines, broken))
}

struct Findings {
    unsafe_lines: Vec<usize>,
    module_paths: Vec<ModulePath>,
    broken: Vec<(usize, String)>,
}

/// Judges one source file; `inside` is its path inside the crate.
fn look_into(manifest: &Manifest, source: &Path, inside: &Path) -> Result<Findings> {
    let text = fs::read_to_string(source).with_context(|| format!("cannot read {}", source.display()))?;
    let words = scan::scan(&text).with_context(|| format!("cannot tokenise {}", source.display()))?;
    let mut broken = Vec::new();
    if !rules::may_be_unsafe(&manifest.name, inside) {
        let rule = format!("`unsafe` is only for {}", rules::UNSAFE_PLACES);
        broken.extend(words.unsafe_lines.iter().map(|&line| (line, rule.clone())));
    }
    if manifest.tier() == Some(Tier::Pure) && inside.starts_with("src") {
        for (line, module) in &words.std_modules {
            let rule = format!("`std::{module}` in a pure crate: no I/O and no threads there");
            broken.push((*line, rule));
        }
        let may_read_clock = rules::may_read_clock(&manifest.name, inside);
        for (line, clock) in words.clocks.iter().filter(|_| !may_read_clock) {
            broken.push((
                *line,
                format!("`{clock}` in a pure crate: time is an argument there"),
            ));
        }
    }
    Ok(Findings {
        unsafe_lines: words.unsafe_lines,
        module_paths: words.module_paths,
        broken,
    })
}

fn print_table(lines: &[Line]) {
    println!(
        "{:12} {:10} {:28} {:6} {:7} unsafe",
        "tier", "crate", "uses", "tokio", "anyhow"
    );
    let mark = |yes: bool| if yes { "yes" } else { "-" };
    for line in lines {
        let manifest = &line.manifest;
        let tier = manifest.tier().map_or("?", Tier::name);
        let uses = manifest.own_crates().collect::<Vec<_>>().join(" ");
        let uses = if uses.is_empty() { "-".to_owned() } else { uses };
        let files = match line.unsafe_files {
            0 => "-".to_owned(),
            count => format!("{count} files"),
        };
        println!(
            "{tier:12} {:10} {uses:28} {:6} {:7} {files}",
            manifest.name,
            mark(manifest.uses("tokio")),
            mark(manifest.uses("anyhow")),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Place, manifest, sources (path and text).
    type Crate<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    fn tree(crates: &[Crate<'_>]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (place, manifest, sources) in crates {
            let place = folder.path().join(place);
            fs::create_dir_all(&place).unwrap();
            fs::write(place.join("Cargo.toml"), manifest).unwrap();
            for (name, text) in *sources {
                let path = place.join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
        }
        folder
    }

    const XTASK: Crate<'_> = ("xtask", "[package]\nname='xtask'", &[]);

    #[test]
    fn a_tree_that_keeps_the_rules_passes() {
        let local = "[package]\nname='ropeway-local'\n[dependencies]\nropeway-vfs.workspace = true";
        let folder = tree(&[
            (
                "crates/local",
                local,
                &[
                    ("src/sys/a.rs", "fn a() { unsafe {} }"),
                    ("src/sys.rs", "unsafe fn b() {}"),
                ],
            ),
            (
                "crates/vfs",
                "[package]\nname='ropeway-vfs'",
                &[("src/lib.rs", "// unsafe std::fs\n")],
            ),
            XTASK,
        ]);
        let (lines, broken) = look(&Workspace::at(folder.path())).unwrap();
        assert_eq!(broken, Vec::<String>::new());
        let names: Vec<_> = lines.iter().map(|line| line.manifest.name.as_str()).collect();
        assert_eq!(names, ["vfs", "local", "xtask"]);
    }

    #[test]
    fn every_broken_rule_is_named_with_its_place() {
        let vfs = "[package]\nname='ropeway-vfs'\n[dependencies]\nropeway-plan.workspace = true\ntokio = '1'";
        let folder = tree(&[
            (
                "crates/vfs",
                vfs,
                &[(
                    "src/lib.rs",
                    "\nfn a() { std::fs::read(b).c }\nunsafe fn d() { Instant::now() }",
                )],
            ),
            (
                "crates/local",
                "[package]\nname='ropeway-local'",
                &[("src/tree.rs", "fn a() { unsafe {} }")],
            ),
            XTASK,
        ]);
        let (_, broken) = look(&Workspace::at(folder.path())).unwrap();
        let all = broken.join("\n");
        for needle in [
            "vfs may not use plan",
            "vfs may not use tokio",
            "crates/vfs/src/lib.rs:2: `std::fs`",
            "crates/vfs/src/lib.rs:3: `unsafe`",
            "crates/vfs/src/lib.rs:3: `Instant::now`",
            "crates/local/src/tree.rs:1: `unsafe`",
        ] {
            assert!(all.contains(needle), "{needle} is not in:\n{all}");
        }
        assert_eq!(broken.len(), 6);
    }
}
