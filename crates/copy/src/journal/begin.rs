//! What a job takes from its journal when it begins.

use ropeway_plan::Nonce;

use super::{Journal, JournalSpec, WallClock};
use crate::context::random;
use crate::status::{Fatal, Status};

/// The journal, the random part of temporary names, and the clock. A job without a journal has a nonce of its own.
pub(crate) fn begin(
    spec: Option<JournalSpec>,
    names_durable: bool,
) -> Result<(Option<Journal>, Nonce, WallClock), Fatal> {
    let Some(spec) = spec else {
        let nonce = random().map_err(|error| {
            let message = format!("the system gives no random number for temporary names: {error}");
            Fatal::new(Status::TargetUnwritable, message)
        });
        return Ok((None, Nonce(nonce?), WallClock::default()));
    };
    match Journal::open(&spec, names_durable) {
        Ok(journal) => {
            let nonce = journal.nonce();
            Ok((Some(journal), nonce, spec.clock))
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err(Fatal::new(Status::Refused, "this very copy is running already")
                .hint("wait for it, or stop it; a stopped copy is continued by the same command"))
        }
        Err(error) => {
            let folder = spec.state_dir.display();
            Err(Fatal::new(
                Status::TargetUnwritable,
                format!("cannot keep a journal in {folder}: {error}"),
            )
            .hint("set XDG_STATE_HOME to a folder that can be written"))
        }
    }
}
