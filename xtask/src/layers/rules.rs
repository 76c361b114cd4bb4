//! The tiers of the architecture as data, and the check of a manifest.
//!
//! ```text
//! pure         block < vfs < plan,  block < smb-wire < smb-proto < smb1,  names < plan, smb-wire
//! mechanism    local  dirty(-> local)  smb-gss  tcp  smb-client(-> smb-gss, tcp)  smb1-client(-> smb-client, tcp)  smb-server(-> smb-gss, tcp)  smb1-server(-> smb-server)  cache  observe
//! composition  copy  boost  write-back  mount
//! product      peers  live  page(-> live)  otel(-> live)  lab(-> peers, live)  fleet  fleet-nats(-> fleet)  cli(-> lab, live, page, otel, fleet, fleet-nats)
//! dev          sim  xtask   used by no other crate, except in its tests
//! ```

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// A tier; a crate may use the tiers before its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// No I/O, no threads, no runtime.
    Pure,
    /// System calls and sockets.
    Mechanism,
    /// Combines pure crates and mechanisms.
    Composition,
    /// Programs, and what they consist of.
    Product,
    /// For developers only.
    Dev,
}

/// The tiers in the order of the table, with their names and their rules for it.
const TIERS: [(Tier, &str, &str); 5] = [
    (
        Tier::Pure,
        "pure",
        "no I/O, no threads, no runtime, no clock; time and randomness are arguments",
    ),
    (Tier::Mechanism, "mechanism", "system calls and sockets"),
    (
        Tier::Composition,
        "composition",
        "a plan and two trees make a job; a store becomes a file system of the kernel",
    ),
    (
        Tier::Product,
        "product",
        "the binary, the laboratory, and the private servers that the laboratory and tests measure with; with `xtask` the \
         only places for `anyhow`",
    ),
    (
        Tier::Dev,
        "dev",
        "the project's tasks; no other crate uses them, except in tests",
    ),
];

impl Tier {
    /// All tiers, in the order of the table.
    pub(super) const ALL: [Self; 5] = [TIERS[0].0, TIERS[1].0, TIERS[2].0, TIERS[3].0, TIERS[4].0];

    /// Returns the name in the table.
    pub(super) fn name(self) -> &'static str {
        TIERS[self as usize].1
    }

    /// Returns the rule for the table in `CONTRIBUTING.md`.
    pub(super) fn rule(self) -> &'static str {
        TIERS[self as usize].2
    }
}

/// All crates in the order of the table, with the crates of its own tier that each may use.
const CRATES: &[(&str, Tier, &[&str])] = &[
    ("block", Tier::Pure, &[]),
    ("names", Tier::Pure, &[]),
    ("vfs", Tier::Pure, &["block"]),
    ("plan", Tier::Pure, &["block", "names", "vfs"]),
    ("smb-wire", Tier::Pure, &["block", "names"]),
    ("smb-proto", Tier::Pure, &["block", "smb-wire"]),
    ("smb1", Tier::Pure, &["block", "smb-wire", "smb-proto"]),
    ("local", Tier::Mechanism, &[]),
    ("dirty", Tier::Mechanism, &["local"]),
    ("smb-gss", Tier::Mechanism, &[]),
    ("tcp", Tier::Mechanism, &[]),
    ("smb-client", Tier::Mechanism, &["smb-gss", "tcp"]),
    ("smb1-client", Tier::Mechanism, &["smb-client", "tcp"]),
    ("smb-server", Tier::Mechanism, &["smb-gss", "tcp"]),
    ("smb1-server", Tier::Mechanism, &["smb-server"]),
    ("cache", Tier::Mechanism, &[]),
    ("observe", Tier::Mechanism, &[]),
    ("copy", Tier::Composition, &[]),
    ("boost", Tier::Composition, &[]),
    ("write-back", Tier::Composition, &[]),
    ("mount", Tier::Composition, &[]),
    ("peers", Tier::Product, &[]),
    ("live", Tier::Product, &[]),
    ("page", Tier::Product, &["live"]),
    ("otel", Tier::Product, &["live"]),
    ("lab", Tier::Product, &["peers", "live"]),
    ("fleet", Tier::Product, &[]),
    ("fleet-nats", Tier::Product, &["fleet"]),
    (
        "cli",
        Tier::Product,
        &["lab", "live", "page", "otel", "fleet", "fleet-nats"],
    ),
    ("sim", Tier::Dev, &[]),
    ("xtask", Tier::Dev, &[]),
];

/// Dependencies that only some crates may have.
const RESERVED: &[(&str, &[&str])] = &[
    (
        "tokio",
        &[
            "smb-client",
            "smb1-client",
            "cache",
            "copy",
            "mount",
            "page",
            "lab",
            "fleet",
            "fleet-nats",
            "cli",
            "xtask", // for its features only
        ],
    ),
    ("anyhow", &["lab", "fleet", "cli", "xtask"]),
];

/// Packages for system calls, which a pure crate must not use.
const SYSTEM: &[&str] = &[
    "rustix", "libc", "io-uring", "nix", "mio", "socket2", "inotify", "fuser", "tempfile",
];

/// Files of pure crates that may read the system's clock: they offer it as a `Clock`.
const CLOCKS: &[(&str, &str)] = &[("vfs", "src/clock.rs")];

/// Files that a circle of a crate may have, and whether more are an error or a warning.
const CIRCLES: &[(&str, usize, bool)] = &[
    ("copy", 3, true),
    ("smb-wire", 3, true),
    ("smb-proto", 3, true),
    ("smb-gss", 3, true),
    ("smb1", 3, true),
    ("smb1-client", 3, true),
    ("smb1-server", 3, true),
    ("smb-client", 3, false),
    ("smb-server", 3, true),
    ("xtask", 3, true),
    ("observe", 3, true),
    ("lab", 3, true),
    ("peers", 3, true),
];

/// Largest circle of files that a crate may have, and whether a larger one is an error; `None` for
/// crates whose circles are not looked at.
pub(super) fn circles(name: &str) -> Option<(usize, bool)> {
    let found = CIRCLES.iter().find(|(known, ..)| *known == name);
    found.map(|(_, max, is_error)| (*max, *is_error))
}

/// Whether a file of a pure crate (path inside it) may read the system's clock.
pub(super) fn may_read_clock(name: &str, inside: &Path) -> bool {
    CLOCKS
        .iter()
        .any(|(known, file)| *known == name && inside == Path::new(file))
}

/// Tier of a crate.
pub(super) fn tier(name: &str) -> Option<Tier> {
    entry(name).map(|(_, tier, _)| *tier)
}

/// Crates that a crate uses inside its own tier.
pub(super) fn siblings(name: &str) -> &'static [&'static str] {
    entry(name).map_or(&[], |(_, _, siblings)| siblings)
}

/// Modules that may contain `unsafe`, for messages.
pub(super) const UNSAFE_PLACES: &str =
    "block, local::sys, observe::sys, tcp::sys, smb_gss::gss::sys and lab::link::sys";

/// The checked parts of a `Cargo.toml`.
#[derive(Debug)]
pub(super) struct Manifest {
    /// Package name without `ropeway-`.
    pub(super) name: String,
    /// Names of its dependencies, without dev-dependencies.
    dependencies: BTreeSet<String>,
}

impl Manifest {
    /// Parses a manifest.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let table: toml::Table = text.parse().context("not valid TOML")?;
        let name = table
            .get("package")
            .and_then(|package| package.get("name")?.as_str())
            .context("no package.name")?;
        let mut dependencies = BTreeSet::new();
        collect(&table, &mut dependencies);
        let targets = table.get("target").and_then(toml::Value::as_table);
        for target in targets.into_iter().flat_map(toml::Table::values) {
            if let Some(target) = target.as_table() {
                collect(target, &mut dependencies);
            }
        }
        Ok(Self {
            name: short(name).to_owned(),
            dependencies,
        })
    }

    /// Returns the tier of a known crate.
    pub(super) fn tier(&self) -> Option<Tier> {
        tier(&self.name)
    }

    /// Whether the crate depends on a package.
    pub(super) fn uses(&self, package: &str) -> bool {
        self.dependencies.contains(package)
    }

    /// Returns the short names of the workspace's crates that it uses.
    pub(super) fn own_crates(&self) -> impl Iterator<Item = &str> {
        self.dependencies
            .iter()
            .filter_map(|name| name.strip_prefix("ropeway-"))
    }
}

fn collect(table: &toml::Table, into: &mut BTreeSet<String>) {
    for section in ["dependencies", "build-dependencies"] {
        let Some(section) = table.get(section).and_then(toml::Value::as_table) else {
            continue;
        };
        for (key, value) in section {
            // `alias = { package = "real" }`
            let renamed = value.get("package").and_then(toml::Value::as_str);
            into.insert(renamed.unwrap_or(key).to_owned());
        }
    }
}

fn short(package: &str) -> &str {
    package.strip_prefix("ropeway-").unwrap_or(package)
}

fn entry(name: &str) -> Option<&'static (&'static str, Tier, &'static [&'static str])> {
    CRATES.iter().find(|(known, ..)| *known == name)
}

/// Returns the position of a crate in the table.
pub(super) fn rank(name: &str) -> usize {
    CRATES
        .iter()
        .position(|(known, ..)| *known == name)
        .unwrap_or(CRATES.len())
}

/// Returns all rules that a manifest breaks.
pub(super) fn judge(manifest: &Manifest) -> Vec<String> {
    let name = manifest.name.as_str();
    let Some((_, tier, siblings)) = entry(name) else {
        return vec![format!(
            "{name} has no tier; give it one in xtask/src/layers/rules.rs"
        )];
    };
    let mut broken = Vec::new();
    for used in manifest.own_crates() {
        match entry(used) {
            None => broken.push(format!("{name} uses {used}, which has no tier")),
            Some((_, Tier::Dev, _)) if !siblings.contains(&used) => {
                broken.push(format!("{name} may not use {used}: it is for tests only"))
            }
            Some((_, of, _)) if of < tier || siblings.contains(&used) => {}
            Some((_, of, _)) => broken.push(format!(
                "{name} may not use {used}: {} is not above {}",
                of.name(),
                tier.name()
            )),
        }
    }
    for (package, allowed) in RESERVED {
        let used = manifest
            .dependencies
            .iter()
            .any(|dependency| of_family(dependency, package));
        if used && !allowed.contains(&name) {
            broken.push(format!(
                "{name} may not use {package}: only {} may",
                allowed.join(", ")
            ));
        }
    }
    if *tier == Tier::Pure {
        for package in SYSTEM.iter().filter(|package| manifest.uses(package)) {
            broken.push(format!("{name} may not use {package}: a pure crate does no I/O"));
        }
    }
    broken
}

/// Whether a dependency is the package or one of its companions (`tokio-util`).
fn of_family(dependency: &str, package: &str) -> bool {
    dependency
        .strip_prefix(package)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Whether a source file (path inside its crate) may hold `unsafe`.
pub(super) fn may_be_unsafe(name: &str, inside: &Path) -> bool {
    let sys = |module: &str| inside == Path::new(&format!("{module}.rs")) || inside.starts_with(module);
    match name {
        "block" => true,
        "local" => sys("src/sys"),
        // bpf(2), ptrace(2), fanotify(7) and what a child does between fork and execve: no crate offers
        // them safely (nix loses real-time signals in the status of a wait).
        "observe" => sys("src/sys"),
        "smb-gss" => sys("src/gss/sys"),
        // getsockopt(2) with TCP_INFO, which rustix lacks.
        "tcp" => sys("src/sys"),
        "lab" => sys("src/link/sys"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(name: &str, dependencies: &[&str]) -> Vec<String> {
        let mut text = format!("[package]\nname='{name}'\n[dependencies]\n");
        for dependency in dependencies {
            text.push_str(&format!("{dependency}.workspace = true\n"));
        }
        judge(&Manifest::parse(&text).unwrap())
    }

    #[test]
    fn the_drawn_arrows_are_allowed() {
        for (name, uses) in [
            ("ropeway-block", &[][..]),
            ("ropeway-vfs", &["ropeway-block", "serde"]),
            ("ropeway-plan", &["ropeway-vfs", "ropeway-block"]),
            ("ropeway-smb-wire", &["ropeway-block"]),
            ("ropeway-smb-proto", &["ropeway-smb-wire", "ropeway-block"]),
            ("ropeway-smb-server", &["ropeway-smb-proto", "ropeway-smb-gss"]),
            ("ropeway-local", &["ropeway-vfs", "rustix"]),
            (
                "ropeway-smb-client",
                &["ropeway-smb-proto", "ropeway-vfs", "tokio", "tokio-util"],
            ),
            ("ropeway-cache", &["ropeway-block", "rustix"]),
            ("ropeway-observe", &["ropeway-vfs", "rustix"]),
            ("ropeway-copy", &["ropeway-plan", "ropeway-local", "tokio"]),
            (
                "ropeway-cli",
                &["ropeway-copy", "ropeway-lab", "ropeway-fleet", "anyhow", "tokio"],
            ),
            ("xtask", &["anyhow"]),
        ] {
            assert_eq!(broken(name, uses), Vec::<String>::new(), "{name}");
        }
    }

    #[test]
    fn arrows_up_or_sideways_are_refused() {
        for (name, uses) in [
            ("ropeway-block", "ropeway-vfs"),
            ("ropeway-vfs", "ropeway-plan"),
            ("ropeway-smb-proto", "ropeway-vfs"),
            ("ropeway-plan", "ropeway-smb-proto"),
            ("ropeway-plan", "ropeway-local"),
            ("ropeway-local", "ropeway-smb-client"),
            ("ropeway-smb-wire", "ropeway-smb-proto"),
            ("ropeway-smb-client", "ropeway-smb-server"),
            ("ropeway-smb-server", "ropeway-smb-client"),
            ("ropeway-smb-server", "tokio"),
            ("ropeway-local", "ropeway-cache"),
            ("ropeway-smb-client", "ropeway-copy"),
            ("ropeway-copy", "ropeway-mount"),
            ("ropeway-lab", "ropeway-cli"),
            ("ropeway-copy", "ropeway-sim"),
            ("ropeway-vfs", "tokio"),
            ("ropeway-local", "tokio-util"),
            ("ropeway-copy", "anyhow"),
            ("ropeway-plan", "rustix"),
            ("ropeway-copy", "ropeway-unheard-of"),
        ] {
            assert_eq!(broken(name, &[uses]).len(), 1, "{name} -> {uses}");
        }
        assert_eq!(broken("ropeway-new", &[]).len(), 1);
    }

    #[test]
    fn hidden_dependencies_are_seen_and_tests_are_exempt() {
        let text = "[package]\nname='ropeway-vfs'\n[dev-dependencies]\ntokio='1'\nropeway-sim.workspace=true\n\
                    [target.'cfg(unix)'.dependencies]\nalias = { package = 'ropeway-plan', version = '1' }\n\
                    [build-dependencies]\nanyhow = '1'\n";
        let broken = judge(&Manifest::parse(text).unwrap());
        assert_eq!(broken.len(), 2, "{broken:?}");
    }

    #[test]
    fn unsafe_has_its_places() {
        for (name, inside, allowed) in [
            ("block", "src/pool.rs", true),
            ("local", "src/sys.rs", true),
            ("local", "src/sys/cachestat.rs", true),
            ("local", "src/system.rs", false),
            ("observe", "src/sys/bpf.rs", true),
            ("observe", "src/bpf/mod.rs", false),
            ("local", "tests/sys.rs", false),
            ("smb-gss", "src/gss/sys.rs", true),
            ("smb-gss", "src/gss.rs", false),
            ("smb-client", "src/sys.rs", false),
            ("lab", "src/link/sys.rs", true),
            ("lab", "src/sys.rs", false),
            ("cli", "src/sys.rs", false),
        ] {
            assert_eq!(may_be_unsafe(name, Path::new(inside)), allowed, "{name} {inside}");
        }
    }
}
