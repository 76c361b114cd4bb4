//! Runs over an emulated line (`ropeway lab link`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::{Finished, PASSWORD, Place, Run, binary, is_root};

/// Serves the folder `data` at the far end, and names it `$far`. `$1` is the binary.
const BEGIN: &str = r#"
set -e
nsenter --net=$ROPEWAY_FAR_NETNS "$1" serve --listen $ROPEWAY_FAR:4450 --user ann --password-file .password \
    --no-announce data=data > served 2>&1 &
server=$!
for try in $(seq 100); do grep -q ropeway served 2>/dev/null && break; sleep 0.1; done
sleep 1
far=smb://ann@$ROPEWAY_FAR:4450/data
"#;

const END: &str = "kill $server\n";

/// Returns the result of a run over a link, or the reason why links do not work here.
///
/// # Errors
/// What is missing here.
#[track_caller]
pub(crate) fn linked(run: Run, code: i32) -> Result<Finished, String> {
    let finished = run.run();
    if finished.mentions("not permitted") || finished.mentions("is missing") {
        return Err(format!("no link: {}", finished.err.trim()));
    }
    finished.assert_code(&[code]);
    Ok(finished)
}

/// Runs commands of sh(1) in a place at the near end of a line of 20 ms and 100 Mbit/s. `$far` is the place's
/// folder `data`, which `ropeway serve` serves at the far end; `$1` is the binary.
///
/// # Errors
/// What is missing here.
#[track_caller]
pub(crate) fn beside_far_server(place: &Place, commands: &str) -> Result<Finished, String> {
    if !is_root() {
        return Err("entering the far end of a line needs root".to_owned());
    }
    place.folder("data");
    let secret = place.join(".password");
    fs::write(&secret, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let link = ["link", "--quiet", "--rtt", "20ms", "--rate", "100mbit", "--"];
    let run = place.ropeway("lab").env("ROPEWAY_PASSWORD", PASSWORD).args(link);
    let script = [BEGIN, commands, END].concat();
    let run = run.args(["sh", "-c", &script, "sh", &binary()]);
    linked(run.hang_after(Duration::from_secs(120)), 0)
}
