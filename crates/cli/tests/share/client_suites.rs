//! The own test suites of two SMB clients, against `ropeway serve` and against Samba's smbd: that of
//! smbprotocol (Python) and that of go-smb2. What passes with smbd passes with `serve`, but for what
//! is named here with its reason.
//!
//! `cargo xtask ci` installs the suites below `target/interop`; without them the tests are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{PASSWORD, Place, interop, or_skip};
use ropeway_peers::{Encryption, PeerError, RopewayServe, Share, Smbd};

/// User of both servers.
const USER: &str = "ann";
/// Shares of both servers, by the names that the suites expect. Clients must encrypt in the second one.
const SHARES: [&str; 3] = ["tmp", "tmp2", "dfs"];

/// Tests that may pass with smbd alone, and why.
const REASONS: &[(&str, &str)] = &[(
    "tests/test_smbclient_shutil.py::test_copy_from_local",
    "wants the copy to have another creation time than its source: both may be made in one tick of the kernel's clock",
)];

/// A suite: a program that tests the server at an address, and prints the outcome of each test.
trait Suite {
    /// Name and version.
    const NAME: &'static str;
    /// Least number of tests that pass with `serve`. A suite that cannot connect passes less.
    const PASSES_MIN: usize;

    /// Returns the command that runs it, with a folder of its own.
    fn command(&self, place: &Path, server: SocketAddr) -> Command;

    /// Returns test and outcome of a line of its output.
    fn outcome(line: &str) -> Option<(&str, Outcome)>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// Runs a suite and returns the outcome of each test.
fn outcomes<S: Suite>(suite: &S, place: &Path, server: SocketAddr) -> BTreeMap<String, Outcome> {
    fs::create_dir_all(place).unwrap();
    // It fails if one test does.
    let output = suite.command(place, server).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    fs::write(place.join("output"), &text).unwrap();
    let found = text.lines().filter_map(S::outcome);
    found.map(|(test, outcome)| (test.to_owned(), outcome)).collect()
}

fn passed(outcomes: &BTreeMap<String, Outcome>) -> BTreeSet<&str> {
    let passed = outcomes
        .iter()
        .filter(|(_, outcome)| **outcome == Outcome::Passed);
    passed.map(|(test, _)| test.as_str()).collect()
}

fn counts(outcomes: &BTreeMap<String, Outcome>) -> String {
    let count = |wanted| outcomes.values().filter(|outcome| **outcome == wanted).count();
    format!(
        "{} passed, {} failed, {} skipped",
        count(Outcome::Passed),
        count(Outcome::Failed),
        count(Outcome::Skipped)
    )
}

/// Runs a suite against both servers.
fn with_both<S: Suite>(suite: &S) -> Result<(), String> {
    let place = Place::in_memory();
    let [share, encrypted, other] = SHARES.map(|name| place.folder(name));
    let serve = RopewayServe::new(Path::new(env!("CARGO_BIN_EXE_ropeway")))
        .user(USER, PASSWORD)
        .share(SHARES[0], &share)
        .share(SHARES[2], &other)
        .flags(&[&format!("{}={}:encrypt", SHARES[1], encrypted.display())])
        .start()
        .unwrap();
    let own = outcomes(suite, &place.join("serve"), serve.address());
    serve.stop().unwrap();
    let [share, encrypted, other] = SHARES.map(|name| place.folder(&format!("smbd-{name}")));
    let smbd = Smbd::builder()
        .user(USER, PASSWORD)
        .share(Share::new(SHARES[0], &share).streams())
        .share(Share::new(SHARES[1], &encrypted).encryption(Encryption::Required))
        .share(Share::new(SHARES[2], &other))
        .start();
    let smbd = match smbd {
        Err(PeerError::Missing { what, .. }) => return Err(what),
        smbd => smbd.unwrap(),
    };
    let other = outcomes(
        suite,
        &place.join("smbd"),
        SocketAddr::from(([127, 0, 0, 1], smbd.port())),
    );
    println!("{}: serve: {}; smbd: {}", S::NAME, counts(&own), counts(&other));
    let passed_by_serve = passed(&own);
    let lost: Vec<&str> = passed(&other)
        .difference(&passed_by_serve)
        .copied()
        .filter(|test| !REASONS.iter().any(|(known, _)| known == test))
        .collect();
    assert!(
        lost.is_empty() && passed_by_serve.len() >= S::PASSES_MIN,
        "{}: serve: {}; smbd: {}; smbd alone passes {lost:#?}\n{}",
        S::NAME,
        counts(&own),
        counts(&other),
        fs::read_to_string(place.join("serve/output")).unwrap()
    );
    Ok(())
}

/// pytest with the tests of smbprotocol.
struct Smbprotocol {
    python: PathBuf,
    tests: PathBuf,
}

impl Suite for Smbprotocol {
    const NAME: &'static str = "smbprotocol 1.17";
    const PASSES_MIN: usize = 700;

    fn command(&self, place: &Path, server: SocketAddr) -> Command {
        let tests = place.join("tests");
        fs::create_dir(&tests).unwrap();
        for entry in fs::read_dir(&self.tests).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), tests.join(entry.file_name())).unwrap();
        }
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/share/interop/conftest.py");
        fs::copy(fixtures, tests.join("conftest.py")).unwrap();
        let mut command = Command::new(&self.python);
        command
            .args(["-B", "-m", "pytest", "-v", "--color=no", "-p", "no:cacheprovider"])
            // They test how the client reads referrals, without a server.
            .args([
                "--ignore=tests/test_dfs.py",
                "--ignore=tests/test_smbclient_pool.py",
                "tests",
            ])
            .current_dir(place)
            .env("SMB_USER", USER)
            .env("SMB_PASSWORD", PASSWORD)
            .env("SMB_PORT", server.port().to_string());
        command
    }

    /// `tests/test_open.py::TestOpen::test_create PASSED [ 10%]`, or `… SKIPPED (why) [ 10%]`
    fn outcome(line: &str) -> Option<(&str, Outcome)> {
        let line = line.rsplit_once(" [")?.0;
        let words = [
            (" PASSED", Outcome::Passed),
            (" FAILED", Outcome::Failed),
            (" ERROR", Outcome::Failed),
            (" SKIPPED", Outcome::Skipped),
        ];
        let found = words.into_iter().find_map(|(word, outcome)| {
            let (test, _) = line.rsplit_once(word)?;
            Some((test, outcome))
        });
        found.filter(|(test, _)| test.contains("::"))
    }
}

#[test]
fn the_suite_of_smbprotocol() {
    let suite = Smbprotocol {
        python: or_skip!(interop("venv/bin/python3")),
        tests: or_skip!(interop("smbprotocol/tests")),
    };
    or_skip!(with_both(&suite));
}

/// The compiled tests of go-smb2.
struct GoSmb2(PathBuf);

impl Suite for GoSmb2 {
    const NAME: &'static str = "go-smb2 1.1";
    const PASSES_MIN: usize = 20;

    fn command(&self, place: &Path, server: SocketAddr) -> Command {
        let configuration = serde_json::json!({
            "max_credit_balance": 128,
            "transport": { "type": "tcp", "host": server.ip().to_string(), "port": server.port() },
            "conn": { "signing": true },
            "session": { "type": "ntlm", "user": USER, "passwd": PASSWORD },
            "tree_conn": { "share1": SHARES[0], "share2": SHARES[1] },
        });
        fs::write(place.join("client_conf.json"), configuration.to_string()).unwrap();
        let mut command = Command::new(&self.0);
        command.args(["-test.v", "-test.timeout=120s"]).current_dir(place);
        command
    }

    /// `--- PASS: TestReaddir (0.01s)`
    fn outcome(line: &str) -> Option<(&str, Outcome)> {
        let (word, rest) = line.trim_start().strip_prefix("--- ")?.split_once(": ")?;
        let outcome = match word {
            "PASS" => Outcome::Passed,
            "FAIL" => Outcome::Failed,
            "SKIP" => Outcome::Skipped,
            _ => return None,
        };
        Some((rest.split_once(" (")?.0, outcome))
    }
}

#[test]
fn the_suite_of_go_smb2() {
    let suite = GoSmb2(or_skip!(interop("bin/go-smb2.test")));
    or_skip!(with_both(&suite));
}

#[test]
fn lines_of_the_suites_are_read() {
    let line = "tests/test_open.py::TestOpen::test_a[b c] PASSED           [ 10%]";
    let read = Smbprotocol::outcome(line);
    assert_eq!(
        read,
        Some(("tests/test_open.py::TestOpen::test_a[b c]", Outcome::Passed))
    );
    let skipped = Smbprotocol::outcome("tests/a.py::b SKIPPED (needs a folder) [ 11%]");
    assert_eq!(skipped, Some(("tests/a.py::b", Outcome::Skipped)));
    assert_eq!(Smbprotocol::outcome("collected 524 items"), None);
    let read = GoSmb2::outcome("    --- FAIL: TestChmod (0.01s)");
    assert_eq!(read, Some(("TestChmod", Outcome::Failed)));
    assert_eq!(GoSmb2::outcome("=== RUN   TestChmod"), None);
}
