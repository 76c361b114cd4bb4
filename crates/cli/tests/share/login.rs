//! Passwords in the keyring, and the secrecy of passwords; with the real binary against a private
//! smbd.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{self, Place, Run, patterned};
use ropeway_peers::{Share, Smbd, or_skip};

const PASSWORD: &str = "correct horse";

/// A user namespace with its own keyrings, which end with it, so that nothing stays on this
/// machine.
struct Namespace {
    holder: Child,
    id: String,
}

impl Namespace {
    fn new() -> Result<Self, String> {
        let mut holder = Command::new("unshare")
            .args([
                "--user",
                "--map-root-user",
                "sh",
                "-c",
                "keyctl show >/dev/null && echo ready; cat",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut said = [0; 5];
        let ready = holder.stdout.as_mut().unwrap().read_exact(&mut said);
        let id = holder.id().to_string();
        let namespace = Self { holder, id };
        match ready {
            Ok(()) => Ok(namespace),
            Err(_) => Err("there are no user namespaces or no keyrings (package keyutils)".to_owned()),
        }
    }

    fn ropeway(&self, place: &Place, command: &str) -> Run {
        self.ropeway_in(&[], place, command)
    }

    /// Runs ropeway through another program in the namespace.
    fn ropeway_in(&self, by: &[&str], place: &Place, command: &str) -> Run {
        let mut before = vec![
            "nsenter",
            "--user",
            "--preserve-credentials",
            "--target",
            &self.id,
        ];
        before.extend(by);
        place.ropeway_by(&before, command)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn server(place: &Place) -> Result<Smbd, ropeway_peers::PeerError> {
    Smbd::builder()
        .user("ann", PASSWORD)
        .share(Share::new("data", &place.folder("data")))
        .start()
}

#[test]
fn a_password_is_kept_used_and_forgotten() {
    let place = Place::new();
    let mut smbd = or_skip!(server(&place));
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(why) => return println!("skipped: {why}"),
    };
    let run = |command: &str| namespace.ropeway(&place, command);
    let (data, root) = (smbd.url("data"), smbd.url(""));
    run("ls").arg(&data).exits(5);

    // A wrong password is not stored, nor one that was never typed.
    let refused = run("login")
        .arg(&root)
        .env("ROPEWAY_PASSWORD", "hunter2")
        .exits(5);
    assert!(!refused.mentions("hunter2"));
    run("login").arg(&root).exits(5);
    run("login").arg(smbd.url_as(Some("guest"), "")).exits(1);
    run("login").arg("/tmp").exits(1);
    run("login").exits(1);
    assert_eq!(run("login").arg("--list").ok().out, "");

    let kept = run("login").arg(&data).env("ROPEWAY_PASSWORD", PASSWORD).ok();
    assert!(
        kept.mentions("stored the password") && !kept.mentions(PASSWORD),
        "{kept}"
    );
    run("ls").arg(&data).ok();
    // Users and hosts are case-insensitive.
    run("ls").arg(data.replace("ann@", "ANN@")).ok();
    let listed = run("login").arg("--list").ok();
    assert_eq!(listed.out.trim(), root.trim_end_matches('/'));
    let listed = run("login").args(["--list", "--json"]).ok();
    assert_eq!(
        listed.of_type("login")[0]["url"],
        root.trim_end_matches('/'),
        "{listed}"
    );
    // Other users have no password, and --keyring off uses none.
    run("ls").arg(smbd.url_as(Some("bob"), "data")).exits(5);
    run("ls").arg(&data).env("ROPEWAY_KEYRING", "off").exits(5);

    // A given password wins over the stored one, which may be out of date.
    run("ls").arg(&data).env("ROPEWAY_PASSWORD", "hunter2").exits(5);
    smbd.set_password("ann", "another one").unwrap();
    let stale = run("ls").arg(&data).exits(5);
    assert!(stale.mentions("ropeway login"), "{stale}");
    run("ls").arg(&data).env("ROPEWAY_PASSWORD", "another one").ok();
    run("login")
        .arg(&data)
        .env("ROPEWAY_PASSWORD", "another one")
        .ok();
    run("ls").arg(&data).ok();

    run("logout").arg(&root).ok();
    run("ls").arg(&data).exits(5);
    let gone = run("logout").arg(&root).exits(3);
    assert!(gone.mentions("--list"), "{gone}");
    assert_eq!(run("login").arg("--list").ok().out, "");

    // With an expiry time, without trying the server, in other keyrings too.
    for ring in ["persistent", "user"] {
        let keep = run("login").args(["--no-check", "--keep-for=1s", "--keyring", ring]);
        keep.arg(&data).env("ROPEWAY_PASSWORD", "another one").ok();
        std::thread::sleep(Duration::from_millis(2100));
        run("ls").args(["--keyring", ring]).arg(&data).exits(5);
        let keep = run("login").args(["--no-check", "--keyring", ring]);
        keep.arg(&data).env("ROPEWAY_PASSWORD", "another one").ok();
        run("ls").args(["--keyring", ring]).arg(&data).ok();
        run("logout").args(["--all", "--keyring", ring]).ok();
        run("ls").args(["--keyring", ring]).arg(&data).exits(5);
    }

    // A session keyring ends with its session.
    let both = "ROPEWAY_PASSWORD=$TYPED \"$@\" && exec \"$1\" ls --keyring session \"$URL\"";
    let session = ["keyctl", "session", "-", "sh", "-c", both, "sh"];
    let kept = namespace.ropeway_in(&session, &place, "login");
    kept.env("TYPED", "another one")
        .env("URL", &data)
        .args(["--keyring", "session", &data])
        .ok();
    run("ls").args(["--keyring", "session"]).arg(&data).exits(5);
}

/// No message, file or trace has the password, neither as it is nor as it is sent.
#[test]
fn nothing_secret_is_seen() {
    let place = Place::new();
    let smbd = or_skip!(server(&place));
    patterned(&place.join("file"), 300_000);
    let credentials = smbd.credentials().unwrap();
    let hash = ropeway_smb_proto::auth::ntlm::nt_hash(&PASSWORD.into());
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let utf16: Vec<u8> = PASSWORD.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let secrets = [
        PASSWORD.as_bytes().to_vec(),
        hex(PASSWORD.as_bytes()).into_bytes(),
        hash.expose().to_vec(),
        hex(hash.expose()).into_bytes(),
        utf16,
        format!("{:?}", PASSWORD.as_bytes()).into_bytes(),
        format!("{:?}", hash.expose()).into_bytes(),
    ];
    let clean = |what: &str, bytes: &[u8]| {
        for secret in &secrets {
            let seen = bytes.windows(secret.len()).any(|window| window == secret);
            assert!(!seen, "{what} shows {}", String::from_utf8_lossy(secret));
        }
    };
    for by_file in [false, true] {
        let trace = place.join(format!("trace-{by_file}"));
        let run = place
            .ropeway("copy")
            .args(["--json", "--verify", "--trace"])
            .arg(&trace);
        let run = run.arg("file").arg(smbd.url(&format!("data/{by_file}")));
        let run = run.env("ROPEWAY_DEBUG", "trace");
        let finished = match by_file {
            true => run.arg("--credentials").arg(&credentials).ok(),
            false => run.env("ROPEWAY_PASSWORD", PASSWORD).ok(),
        };
        assert!(
            finished.err.contains("DEBUG"),
            "there is a log to look at: {finished}"
        );
        clean("the output", finished.out.as_bytes());
        clean("the log", finished.err.as_bytes());
        clean("the trace", &fs::read(&trace).unwrap());
    }
    // A copy that cannot finish leaves its journal.
    let big = place.join("big");
    patterned(&big, 30 << 20);
    let run = place
        .ropeway("copy")
        .args(["--bwlimit", "2M"])
        .arg(&big)
        .arg(smbd.url("data/big"));
    let mut running = run.env("ROPEWAY_PASSWORD", PASSWORD).start();
    assert!(running.until(|_| !files_below(place.join(".state")).is_empty()));
    std::thread::sleep(Duration::from_millis(500));
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains("--bwlimit") {
            clean("the process list", &line);
        }
    }
    running.kill();
    let journals = files_below(place.join(".state"));
    assert!(!journals.is_empty(), "there is a journal to look at");
    for journal in journals {
        clean("the journal", &fs::read(journal).unwrap());
    }
}

/// Types these characters at the prompt, on a terminal of `script`(1).
fn typed(place: &Place, keys: &str, command: &str, url: &str) -> support::Finished {
    let log = place.join(format!("typed.{}", keys.len()));
    let shell = "(for i in $(seq 300); do grep -q 'assword.*: ' \"$LOG\" && break; sleep 0.1; done; \
                 printf \"$KEYS\") 2>/dev/null | script --quiet --return --flush --command \"$*\" \"$LOG\"";
    let run = place.ropeway_by(&["sh", "-c", shell, "sh"], command);
    run.env("LOG", &log)
        .env("KEYS", keys)
        .env("SHELL", "/bin/sh")
        .args(["--keyring", "off", url])
        .run()
}

#[test]
fn a_terminal_prompt_has_no_echo() {
    let place = Place::new();
    let smbd = or_skip!(server(&place));
    if let Err(why) = support::needs(false, &["script"]) {
        return println!("skipped: {why}");
    }
    fs::write(place.join("data/found"), b"x").unwrap();
    let url = smbd.url("data");
    let listed = typed(&place, &format!("{PASSWORD}\n"), "ls", &url);
    assert!(
        listed.code() == Some(0) && listed.mentions("found") && !listed.mentions(PASSWORD),
        "{listed}"
    );
    let wrong = typed(&place, "hunter2\n", "ls", &url);
    assert!(
        wrong.code() == Some(5) && wrong.mentions("hint") && !wrong.mentions("hunter2"),
        "{wrong}"
    );
    // Ctrl-C in the middle of the input.
    let left = typed(&place, "correct\\003", "ls", &url);
    assert!(
        left.code() == Some(130) && left.mentions("nothing was changed") && !left.mentions("correct"),
        "{left}"
    );
}

fn files_below(top: PathBuf) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![top], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files
}

/// A build without Kerberos says so before it tries anything; nothing listens on port 9.
#[cfg(not(feature = "kerberos"))]
#[test]
fn a_build_without_kerberos_says_so() {
    let place = Place::new();
    for how in ["kerberos", "krb5"] {
        let run = place
            .ropeway("ls")
            .args(["--auth", how])
            .arg("smb://ann@localhost:9/data");
        let finished = run.exits(1);
        assert!(finished.mentions("built without Kerberos"), "{finished}");
        assert!(finished.mentions("--features kerberos"), "{finished}");
    }
    let run = place.ropeway("ls").arg("smb://ann@localhost:9/data");
    run.env("ROPEWAY_AUTH", "kerberos").exits(1);
}
