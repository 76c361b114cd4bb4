//! Builds the test programs with one call of cargo, and finds them in its output. A program whose modules
//! are tests of their own ([`GROUPS`]) becomes one for each module.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{capture, shown};
use crate::workspace::Workspace;

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Folder of the package and target, or module of a group: `cli attack`. The tests of a library have
    /// the name of the folder.
    pub(super) name: String,
    /// The program.
    pub(super) path: PathBuf,
    /// The package's folder, in which cargo runs it.
    pub(super) folder: PathBuf,
    /// The tests to run, with their modules; all if there is none.
    pub(super) tests: Vec<String>,
}

/// Programs whose modules run one by one: each needs its own servers, devices and time, but linking each
/// into a program of its own takes minutes.
const GROUPS: &[&str] = &[
    "boost boost_tests",
    "cache cache_tests",
    "cli lab",
    "cli local",
    "cli mount",
    "cli share",
    "copy copy_tests",
    "fleet fleet_tests",
    "lab lab_tests",
    "local local_tests",
    "smb-client smb_client_tests",
    "smb1-client smb1_client_tests",
];

/// Test targets without libtest, which other steps run.
const OWN_HARNESS: &[&str] = &["smb-server storm"];

/// The used fields of a line of `--message-format=json`.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    executable: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all test programs.
///
/// # Errors
/// A program does not compile.
pub(super) fn build(workspace: &Workspace) -> Result<Vec<Program>> {
    let mut command = workspace.cargo(["test", "--no-run", "--message-format=json-render-diagnostics"]);
    command.args(super::selection());
    println!("$ {}", shown(&command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let output = child.stdout.take().context("no output")?;
    let mut programs = Vec::new();
    for line in BufReader::new(output).lines() {
        programs.extend(program_of(&line?));
    }
    if !child.wait()?.success() {
        bail!("a test program does not compile");
    }
    programs.retain(|program| !OWN_HARNESS.contains(&program.name.as_str()));
    let mut all = Vec::new();
    for program in programs {
        match GROUPS.contains(&program.name.as_str()) {
            true => {
                let mut list = Command::new(&program.path);
                list.args(["--list", "--format", "terse"])
                    .current_dir(&program.folder);
                all.extend(modules(&program, &capture(&mut list)?));
            }
            false => all.push(program),
        }
    }
    Ok(all)
}

/// Returns a program for each module, from libtest's list of tests.
fn modules(group: &Program, list: &str) -> Vec<Program> {
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for test in list.lines().filter_map(|line| line.strip_suffix(": test")) {
        let module = test.split_once("::").map_or(test, |(module, _)| module);
        modules.entry(module).or_default().push(test.to_owned());
    }
    let package = group.name.split(' ').next().unwrap_or_default();
    let one = |(module, tests)| Program {
        name: format!("{package} {module}"),
        path: group.path.clone(),
        folder: group.folder.clone(),
        tests,
    };
    modules.into_iter().map(one).collect()
}

fn program_of(line: &str) -> Option<Program> {
    let message: Message = serde_json::from_str(line).ok()?;
    let (target, folder) = (message.target?, message.manifest_path?.parent()?.to_path_buf());
    if message.reason != "compiler-artifact" || !message.profile?.test {
        return None;
    }
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let name = match target.kind.first()?.as_str() {
        "lib" => package,
        "bin" => format!("{package} (program)"),
        _ => format!("{package} {}", target.name),
    };
    Some(Program {
        name,
        path: message.executable?,
        folder,
        tests: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let line = |kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/cli/Cargo.toml",
                "target":{{"name":"power","kind":["{kind}"]}},"profile":{{"test":{test}}},"executable":"/t/power-1"}}"#
            )
        };
        let program = program_of(&line("test", true)).unwrap();
        assert_eq!(program.name, "cli power");
        assert_eq!(program.folder, PathBuf::from("/w/crates/cli"));
        assert_eq!(program_of(&line("lib", true)).unwrap().name, "cli");
        assert_eq!(program_of(&line("bin", false)), None, "the product itself");
        assert_eq!(program_of(r#"{"reason":"build-finished","success":true}"#), None);
        assert_eq!(program_of("noise"), None);
    }

    #[test]
    fn a_group_becomes_its_modules() {
        let group = Program {
            name: "cli local".to_owned(),
            path: PathBuf::from("/t/local-1"),
            folder: PathBuf::from("/w/crates/cli"),
            tests: Vec::new(),
        };
        let list = "mirror::moves::one: test\nattack::a: test\nmirror::two: test\nattack::b: benchmark\n\n";
        let found: Vec<_> = modules(&group, list)
            .into_iter()
            .map(|program| (program.name, program.tests))
            .collect();
        let wanted = [
            ("cli attack", vec!["attack::a"]),
            ("cli mirror", vec!["mirror::moves::one", "mirror::two"]),
        ];
        let wanted =
            wanted.map(|(name, tests)| (name.to_owned(), tests.iter().map(ToString::to_string).collect()));
        assert_eq!(found, wanted);
    }
}
