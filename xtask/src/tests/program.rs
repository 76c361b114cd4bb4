//! Builds the test programs with one call of cargo, and finds them in its output.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::shown;
use crate::workspace::Workspace;

/// One test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    /// Folder of the package and target: `cli attack`. The tests of a library have the name of the
    /// folder.
    pub(super) name: String,
    /// The program.
    pub(super) path: PathBuf,
    /// The package's folder, in which cargo runs it.
    pub(super) folder: PathBuf,
}

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
    Ok(programs)
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
}
