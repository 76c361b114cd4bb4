//! `ropeway serve`.
//!
//! ```text
//! settings   flags → ServerOptions, limits of the system
//! shares     [NAME=]DIR[:ro][:encrypt] → folders, kept open over reloads
//! kerberos   a key from a keytab, and who may come with a ticket
//! accounts ─ users (the file), phrase (a random one), user (serve user add|rm|list), directory (names of accounts)
//! audit      JSON Lines, by a thread of its own
//! http ───── metrics
//! announce   multicast DNS, WS-Discovery
//! signals    SIGTERM and SIGINT stop, a second one ends, SIGHUP reloads
//! ```

mod accounts;
mod announce;
mod audit;
mod directory;
mod http;
mod kerberos;
mod metrics;
mod phrase;
mod settings;
mod shares;
mod signals;
mod user;
mod users;
mod voice;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ropeway_smb_server::{Server, ServerOptions};

use self::accounts::Accounts;
use self::announce::Announcer;
use self::audit::Audit;
use self::http::Looking;
use self::metrics::Metrics;
use self::shares::Folders;
use self::signals::Reload;
use self::voice::Voice;
use crate::args::{ServeArgs, ServeCommand};
use crate::boot;
use crate::failure::{Failure, code};
use crate::secrets::keep_private;

/// Runs the command; gives its exit code.
///
/// # Errors
/// A folder cannot be shared, an address cannot be had, or what was written cannot be made durable.
pub(crate) fn run(args: &ServeArgs) -> Result<u8, Failure> {
    // Before passwords, hashes and keys are read.
    keep_private();
    if let Some(ServeCommand::User(user)) = &args.command {
        return user::run(&user.command, args.login.users.as_ref());
    }
    boot::start_warnings();
    let voice = Arc::new(Voice::new(args.watch.json));
    let wanted = shares::wanted(args)?;
    settings::check_shares(args, &wanted)?;
    let (accounts, told) = Accounts::load(&args.login)?;
    let mut options = settings::options(args, accounts.lookup())?;
    options.directory = Arc::new(accounts.directory());
    options.config.mechanisms = kerberos::mechanisms(&args.login, accounts.lookup())?;
    let mut folders = Folders::new(settings::descriptors(options.connections_max));
    options.shares = folders.set(wanted)?;
    let name = options.name.clone();
    let writer = match &args.watch.audit {
        Some(path) => {
            let (audit, writer) = Audit::start(path)?;
            options.audit = Some(Arc::new(audit));
            Some(Arc::new(writer))
        }
        None => None,
    };
    let server = bind(args, options)?;
    let addresses = server.local_addrs().to_vec();
    let http = match args.watch.http {
        Some(address) => Some(http::start(address, Looking(Metrics::new(server.handle())))?),
        None => None,
    };
    let announcer = announcer(args, &name, &addresses, &voice);
    let shown: Vec<_> = folders.now().cloned().collect();
    let shown: Vec<_> = shown.iter().collect();
    // Caught before anybody is told that it listens.
    let reload = Reload {
        server: server.handle(),
        args: args.clone(),
        accounts,
        folders,
        audit: writer.clone(),
        voice: Arc::clone(&voice),
    };
    signals::catch(reload)?;
    voice.listening(args, &name, &addresses, &shown, &told, http);
    drop(told);
    let result = server.run();
    if let Some(announcer) = announcer {
        announcer.stop();
    }
    if let Some(writer) = writer {
        writer.finish();
    }
    result.map_err(|error| {
        Failure::new(
            code::TARGET,
            format!("not everything that was written is durable: {error}"),
        )
        .hint("look at the disks; what clients flushed before is there")
    })?;
    voice.stopped();
    Ok(code::DONE)
}

fn bind(args: &ServeArgs, options: ServerOptions) -> Result<Server, Failure> {
    Server::bind_all(&args.listen, options).map_err(|(address, error)| {
        let failure = |what: &str, code| Failure::new(code, format!("cannot listen on {address}: {what}"));
        match error.kind() {
            io::ErrorKind::AddrInUse => failure("another program does", code::NETWORK).hint(format!(
                "choose another port with --listen; `ss -ltnp 'sport = :{}'` names it",
                address.port()
            )),
            io::ErrorKind::PermissionDenied => failure(
                "only privileged programs may, below port 1024",
                code::PERMISSION,
            )
            .hint(
                "use packaging/ropeway-serve.service, or give the capability: setcap cap_net_bind_service=ep \
                     $(command -v ropeway); or choose a higher port",
            ),
            io::ErrorKind::AddrNotAvailable => {
                failure("it is no address of this machine", code::NETWORK).hint("`ip address` lists them")
            }
            _ => failure(&error.to_string(), code::NETWORK).hint("choose another address with --listen"),
        }
    })
}

fn announcer(
    args: &ServeArgs,
    name: &str,
    addresses: &[SocketAddr],
    voice: &Arc<Voice>,
) -> Option<Announcer> {
    if !args.watch.announce {
        return None;
    }
    match Announcer::start(name, addresses) {
        Ok((announcer, troubles)) => {
            for trouble in troubles {
                voice.warn(&format!("announced in part: {trouble}"));
            }
            Some(announcer)
        }
        // The shares are served all the same.
        Err(why) => {
            voice.warn(&format!("not announced: {why}"));
            None
        }
    }
}
