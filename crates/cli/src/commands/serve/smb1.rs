//! `serve --smb1`: SMB 1 for old clients, with a warning at the start and one for each client.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use ropeway_smb_client::Encryption;
use ropeway_smb_server::ServerOptions;
use ropeway_smb1::dos_time::Zone;
use ropeway_smb1_server::Smb1Server;

use super::printer::Printer;
use crate::args::ServeArgs;
use crate::failure::Failure;

/// Clients that are remembered as warned of. A guess: networks with such clients are small.
const WARNED_MAX: usize = 4096;

/// Returns the options of a server that speaks SMB 1, if the flags say so.
///
/// # Errors
/// The flags contradict each other.
pub(super) fn enable(
    args: &ServeArgs,
    mut options: ServerOptions,
    printer: &Arc<Printer>,
) -> Result<ServerOptions, Failure> {
    if !args.smb1.smb1 {
        return Ok(options);
    }
    if args.protocol.encrypt == Encryption::Required {
        return Err(
            Failure::usage("--smb1 contradicts --encrypt required: SMB 1 cannot encrypt")
                .hint("leave out one of them; :encrypt after a folder keeps SMB 1 clients out of it"),
        );
    }
    printer.warn(
        "--smb1: SMB 1 is neither encrypted nor safe: others on the network can read what old clients send and \
         receive; use a network and a user of their own",
    );
    let warned = Mutex::new(HashSet::new());
    let printer = Arc::clone(printer);
    options.foreign = Some(Arc::new(Smb1Server {
        code_page: args.smb1.client_code_page.unwrap_or_default(),
        zone: local_zone(),
        on_client: Arc::new(move |client| {
            let is_new = {
                let mut warned = warned.lock();
                warned.len() < WARNED_MAX && warned.insert(client)
            };
            if is_new {
                printer.warn(&format!(
                    "{client} speaks SMB 1: others on the network can read what it sends and receives"
                ));
            }
        }),
    }));
    Ok(options)
}

/// Returns the machine's distance from UTC now.
fn local_zone() -> Zone {
    let seconds = jiff::Zoned::now().offset().seconds();
    Zone(i16::try_from(-seconds / 60).unwrap_or(0))
}
