//! Names instead of numbers: what `ropeway serve` tells other clients about accounts, shares and
//! sessions over the pipes `srvsvc`, `lsarpc` and `samr`.
//!
//! Samba's rpcclient, smbcacls and net are used as installed; `cargo xtask ci` installs impacket
//! below `target/interop`. Tests without their program are skipped.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{
    PASSWORD, Place, Served, at_the_usual_port, has_xattrs, is_root, or_skip, program, skip,
};
use serde_json::{Value, json};

/// A run of another client that takes longer hangs. Generous, as for our own binary.
const HANG_SECONDS: &str = "90";

/// A server with the name `nas`, the users ann and bob, and their file.
struct Named {
    served: Served,
    _users: Place,
}

impl Named {
    fn start(flags: &[&str]) -> Self {
        let users = Place::new();
        let file = users.join("users");
        let file = file.to_str().unwrap();
        let add = users
            .ropeway("serve")
            .args(["user", "add", "bob", "--users", file]);
        add.env("ROPEWAY_PASSWORD", PASSWORD).ok();
        let named = ["--name", "nas", "--users", file];
        let served = Served::start(&[&named, flags].concat());
        fs::write(served.behind("file"), "text").unwrap();
        Self {
            served,
            _users: users,
        }
    }

    /// Returns a file with a user's password in the format of Samba's clients.
    fn secret(&self, user: &str) -> PathBuf {
        let file = self.served.place.join(format!(".{user}"));
        fs::write(&file, format!("username={user}\npassword={PASSWORD}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    /// Returns the output of rpcclient for some commands; anonymous without a user.
    fn rpcclient(&self, user: Option<&str>, commands: &str) -> String {
        let address = self.served.address();
        let mut command = samba("rpcclient", &self.served.place);
        command.arg("--port").arg(address.port().to_string());
        match user {
            Some(user) => command.arg("--authentication-file").arg(self.secret(user)),
            None => command.args(["--no-pass", "--user=%"]),
        };
        let output = ended(command.arg(address.ip().to_string()).args(["-c", commands]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Runs one of Samba's clients without this machine's settings.
fn samba(name: &str, place: &Place) -> Command {
    let mut command = Command::new("timeout");
    command.args([HANG_SECONDS, name, "--configfile", "/dev/null"]);
    // The state files of `net` go into the test's own place.
    for kept in [
        "private dir",
        "lock directory",
        "state directory",
        "cache directory",
    ] {
        command.arg(format!("--option={kept}={}", place.join("").display()));
    }
    command
}

fn ended(command: &mut Command) -> Output {
    let command = command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    command.output().unwrap()
}

#[track_caller]
fn holds(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
}

#[test]
fn rpcclient_gets_names() {
    or_skip!(program("rpcclient").ok_or("rpcclient is not installed"));
    let named = Named::start(&[]);
    let ann = |commands: &str| named.rpcclient(Some("ann"), commands);
    holds(
        &ann("lookupsids S-1-1-0 S-1-5-18 S-1-5-32-544 S-1-22-1-0 S-1-22-1-4294967"),
        &[
            r"S-1-1-0 \Everyone (5)",
            r"S-1-5-18 NT AUTHORITY\SYSTEM (5)",
            r"S-1-5-32-544 BUILTIN\Administrators (4)",
            r"S-1-22-1-0 Unix User\root (1)",
            r"S-1-22-1-4294967 *unknown*\*unknown* (8)",
        ],
    );
    let names = ann("lookupnames bob root Everyone nobody-of-that-name");
    holds(
        &names,
        &[
            "bob S-1-5-21-",
            "root S-1-22-1-0 (User: 1)",
            "Everyone S-1-1-0",
            "nobody-of-that-name S-0-0 (UNKNOWN: 8)",
        ],
    );
    // The SID found for a name leads back to the name.
    let sid = names.split_whitespace().nth(1).unwrap();
    holds(&ann(&format!("lookupsids {sid}")), &[r"NAS\bob (1)"]);
    holds(&ann("getusername"), &["Account Name: ann, Authority Name: NAS"]);
    holds(&ann("enumdomusers"), &["user:[ann]", "user:[bob]"]);
    holds(&ann("enumalsgroups builtin"), &["group:[Administrators]"]);
    holds(&ann("queryuser ann"), &["User Name   :\tann"]);
    holds(&ann("querydominfo"), &["Domain:\t\tNAS", "Total Users:\t2"]);
    holds(&ann("querydispinfo"), &["Account: ann", "Account: bob"]);
    holds(&ann("lsaquery"), &["Domain Name: nas"]);
    holds(&ann("netshareenum"), &["netname: data", "netname: IPC$"]);
    holds(&ann("netshareenumall 502"), &["netname: data"]);
    holds(&ann("netsharegetinfo data 1005"), &["flags: 0x0"]);
    holds(&ann("netsessenum"), &["Received 1 entries."]);
    holds(&ann("netfileenum"), &["result was"]);
    named.served.stop();
}

#[test]
fn anonymous_sessions_get_no_names() {
    or_skip!(program("rpcclient").ok_or("rpcclient is not installed"));
    let named = Named::start(&["--anonymous"]);
    let nobody = |commands: &str| named.rpcclient(None, commands);
    holds(&nobody("netshareenumall"), &["netname: data"]);
    holds(&nobody("getusername"), &["ANONYMOUS LOGON"]);
    holds(&nobody("netsessenum"), &["WERR_ACCESS_DENIED"]);
    for commands in [
        "lookupsids S-1-22-1-0",
        "lookupnames ann",
        "enumdomusers",
        "queryuser ann",
    ] {
        let told = nobody(commands);
        holds(&told, &["NT_STATUS_ACCESS_DENIED"]);
        assert!(!told.contains("root") && !told.contains("bob"), "{told}");
    }
    named.served.stop();
}

#[test]
fn permissions_are_shown_and_set_by_name() {
    if !is_root() || program("smbcacls").is_none() || program("smbclient").is_none() {
        skip!("needs root, smbcacls and smbclient");
    }
    let named = Named::start(&[]);
    if !has_xattrs(&named.served.place) {
        skip!("needs extended attributes in the folder for temporary files");
    }
    let usual = at_the_usual_port(named.served.address()).unwrap();
    let smbcacls = |action: &[&str]| {
        let mut command = samba("smbcacls", &named.served.place);
        command.arg("--authentication-file").arg(named.secret("ann"));
        let output = ended(command.args([&format!("//{usual}/data"), "file"]).args(action));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{told}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        told
    };
    let before = smbcacls(&[]);
    holds(
        &before,
        &[
            r"OWNER:Unix User\root",
            "ACL:Everyone:",
            r"ACL:NT AUTHORITY\SYSTEM:",
        ],
    );
    smbcacls(&["-S", "ACL:bob:ALLOWED/0x0/FULL"]);
    holds(&smbcacls(&[]), &[r"ACL:NAS\bob:ALLOWED/0x0/FULL"]);
    // A permission set by name applies to that user only.
    let reads = |user: &str| {
        let mut command = samba("smbclient", &named.served.place);
        command.arg("--authentication-file").arg(named.secret(user));
        let share = format!("//{usual}/data");
        let output = ended(command.args([share.as_str(), "-c", "get file -"]));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    holds(&reads("bob"), &["text"]);
    holds(&reads("ann"), &["NT_STATUS_ACCESS_DENIED"]);
    named.served.stop();
}

#[test]
fn net_lists_users_and_shares() {
    if !is_root() || program("net").is_none() {
        skip!("needs root and net");
    }
    let named = Named::start(&[]);
    let usual = at_the_usual_port(named.served.address()).unwrap();
    for (words, lines) in [
        (["rpc", "user"].as_slice(), ["ann", "bob"].as_slice()),
        (&["rpc", "share", "list"], &["data"]),
        (&["rpc", "info"], &["Domain Name: NAS", "Num users: 2"]),
        (&["rpc", "group", "list"], &["Administrators"]),
        (&["time"], &["20"]),
    ] {
        let mut command = samba("net", &named.served.place);
        command
            .args(words)
            .args(["-S", &usual.to_string(), "--authentication-file"]);
        let output = ended(command.arg(named.secret("ann")));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        holds(&(told + &complaint), lines);
    }
    named.served.stop();
}

#[test]
fn impacket_gets_names() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let python = target.join("interop/venv/bin/python3");
    if !python.exists() {
        skip!("there is no interop/venv in the target folder; `cargo xtask ci --only tools` puts it there");
    }
    let named = Named::start(&[]);
    let address = named.served.address();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/share/interop/names.py");
    let mut command = Command::new("timeout");
    command.arg(HANG_SECONDS).arg(python).arg("-B").arg(script);
    command.args([address.ip().to_string(), address.port().to_string()]);
    command.envs([
        ("SMB_USER", "ann"),
        ("SMB_OTHER", "bob"),
        ("SMB_PASSWORD", PASSWORD),
    ]);
    let output = ended(&mut command);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (what, expected) in [
        // Bob's session is not listed.
        ("sessions", json!({"0": 2, "1": 2, "2": 2, "10": 2, "502": 2})),
        // The pipe, and three files.
        ("opens", json!([1, 3])),
        ("session_users", json!(["ann"])),
        ("session_clients", json!(["127.0.0.1"])),
        ("shares", json!([2, 2, 2, 2, 2])),
        ("share_levels", json!([0, 0, 0, 0, 0, 0])),
        ("unknown_call", json!("nca_s_op_rng_error")),
        ("policy", json!([0, 0, 0])),
        ("hLsarLookupSids", json!(["Everyone", "root", "Administrators"])),
        ("hLsarLookupSids2", json!(["Everyone", "root", "Administrators"])),
        ("hLsarLookupNames", json!(4)),
        ("hLsarLookupNames2", json!(4)),
        ("hLsarLookupNames3", json!(4)),
        ("many", json!(400)),
        ("own_name", json!("ann")),
        ("closed_handle", json!("nca_s_fault_context_mismatch")),
        ("domains", json!(["NAS", "BUILTIN"])),
        ("users", json!(["ann", "bob"])),
        ("names", json!(["ann", "None"])),
        ("user_levels", json!([0, 0, 0, 0, 0, 0, 0])),
        ("user", json!("ann")),
        ("groups", json!([513])),
        ("domain_levels", json!([0, 0, 0, 0, 0])),
        ("display", json!(2)),
        ("workstation", json!(["nas", "nas", "nas"])),
    ] {
        assert_eq!(told[what], expected, "{what}");
    }
    named.served.stop();
}
