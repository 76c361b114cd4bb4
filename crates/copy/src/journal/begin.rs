//! Opens the journal of a job that begins.

use ropeway_plan::Nonce;

use crate::job::environment::Environment;
use crate::job::outcome::{Fatal, Status};
use crate::journal::open::{Journal, JournalSpec};

/// Opens the journal, and returns it with the nonce of temporary names. A job without a journal has
/// a new nonce.
pub(crate) async fn begin_journal(
    spec: Option<JournalSpec>,
    environment: &Environment,
    names_durable: bool,
) -> Result<(Option<Journal>, Nonce), Fatal> {
    let Some(spec) = spec else {
        let nonce = environment.random.next().map_err(|error| {
            let message = format!("the system gives no random number for temporary names: {error}");
            Fatal::new(Status::TargetUnwritable, message)
        });
        return Ok((None, Nonce(nonce?)));
    };
    match Journal::open(&spec, environment, names_durable).await {
        Ok(journal) => {
            let nonce = journal.nonce();
            Ok((Some(journal), nonce))
        }
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
            Err(Fatal::new(Status::Refused, "this very copy is running already")
                .hint("wait for it, or stop it; a stopped copy is continued by the same command"))
        }
        Err(error) => {
            let folder = spec.store.describe();
            Err(Fatal::new(
                Status::TargetUnwritable,
                format!("cannot keep a journal in {folder}: {error}"),
            )
            .hint("set XDG_STATE_HOME to a folder that can be written"))
        }
    }
}
