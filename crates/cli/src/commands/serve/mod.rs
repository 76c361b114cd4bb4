//! `ropeway serve`.
//!
//! ```text
//! settings   flags → ServerOptions, system limits
//! shares ─── [NAME=]DIR|URL[:ro][:encrypt] → folders and far shares, kept open across reloads
//!   ├ handles  the journals of persistent handles
//!   └ far    the far servers whose shares are served
//!      └ write_back   the journals of --write-back
//! kerberos   the key from a keytab, and which tickets are accepted
//! accounts ─ users (the file), phrase (a random password), user (serve user add|rm|list), directory (names of accounts)
//! audit      JSON Lines, written by a thread
//! announce   multicast DNS, WS-Discovery
//! smb1       SMB 1 for old clients, with its warnings
//! signals    SIGTERM and SIGINT stop the server, SIGHUP reloads
//! ```

mod accounts;
mod announce;
mod audit;
mod directory;
mod far;
mod handles;
mod instructions;
mod kerberos;
mod phrase;
mod printer;
mod settings;
mod shares;
mod signals;
#[cfg(feature = "smb1")]
mod smb1;
mod user;
mod users;
pub(crate) mod write_back;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ropeway_live::{Live, Part, PartHandle};
use ropeway_smb_server::{Server, ServerOptions};

use self::accounts::Accounts;
use self::announce::Announcer;
use self::audit::Audit;
use self::far::FarServers;
use self::printer::Printer;
use self::shares::{Folders, RequestedShare};
use self::signals::Reload;
pub(crate) use self::users::check_name as check_user_name;
use crate::args::{ServeArgs, ServeCommand};
use crate::boot;
use crate::failure::{Failure, code};
use crate::live::{self, BacklogsPart, CachePart, ServerPart};
use crate::page;
use crate::secrets::protect_memory;
use crate::trace_file::TraceWriter;

/// Runs the command and returns its exit code.
///
/// # Errors
/// A folder cannot be shared, an address cannot be used, or written data cannot be made durable.
pub(crate) fn run(args: &ServeArgs) -> Result<u8, Failure> {
    // Must come before passwords, hashes and keys are read.
    protect_memory();
    if let Some(ServeCommand::User(user)) = &args.command {
        return user::run(&user.command, args.login.users.as_ref());
    }
    boot::start_warnings();
    let printer = Arc::new(Printer::new(args.watch.json));
    let wanted = shares::requested(args)?;
    settings::check_shares(args, &wanted)?;
    write_back::check_flags(&args.far)?;
    let has_far = wanted.iter().any(RequestedShare::is_far);
    let (accounts, summary) = Accounts::load(&args.login, has_far)?;
    let mut options = settings::options(args, accounts.lookup())?;
    options.directory = Arc::new(accounts.directory());
    options.config.mechanisms = kerberos::mechanisms(&args.login, accounts.lookup())?;
    let live = live::start("serve");
    let far = Arc::new(FarServers::new(&args.far, &printer)?);
    far.check_backlogs(&wanted)?;
    let trace = args.watch.trace.as_deref();
    let trace = trace.map(TraceWriter::start_run).transpose()?;
    let folders = Folders::new(settings::descriptors(options.connections_max), Arc::clone(&far));
    let folders = folders.with_handles(args.protocol.handles.clone());
    let mut folders = folders.traced(trace.as_ref().map(TraceWriter::observer));
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
    let server = bind(args, options, &printer)?;
    let addresses = server.local_addrs().to_vec();
    let _parts = parts(&live, &server, &name, &far);
    let page = page::start(&args.watch.http, &live)?;
    let shown: Vec<_> = folders.now().cloned().collect();
    let announcer = announcer(args, &name, (&addresses, &shown), &printer);
    let shown: Vec<_> = shown.iter().collect();
    // Signals must be caught before the server reports that it listens.
    let reload = Reload {
        server: server.handle(),
        args: args.clone(),
        accounts,
        folders,
        audit: writer.clone(),
        printer: Arc::clone(&printer),
    };
    signals::catch(reload)?;
    live.wait();
    printer.listening(args, &name, &addresses, &shown, &summary, page.as_ref());
    drop(summary);
    let result = server.run();
    drop(page);
    if let Some(announcer) = announcer {
        announcer.stop();
    }
    if let Some(writer) = writer {
        writer.finish();
    }
    let traced = trace.map_or(Ok(()), TraceWriter::finish_run);
    result.map_err(|error| not_durable(&error))?;
    far.log_off();
    traced?;
    printer.stopped();
    Ok(code::DONE)
}

fn not_durable(error: &io::Error) -> Failure {
    Failure::new(code::TARGET, format!("not all written data is durable: {error}"))
        .hint("check the disks and far servers; data that clients flushed earlier is durable")
}

/// Registers what other processes see of the server.
fn parts(live: &Live, server: &Server, name: &str, far: &FarServers) -> Vec<PartHandle> {
    let mut parts: Vec<Arc<dyn Part>> = vec![
        Arc::new(ServerPart::new(server.handle(), name, server.local_addrs())),
        Arc::new(BacklogsPart(far.backlog_status())),
    ];
    parts.extend(
        far.cache_status()
            .map(|status| Arc::new(CachePart(status)) as Arc<dyn Part>),
    );
    parts.into_iter().map(|part| live.add(part)).collect()
}

#[cfg_attr(not(feature = "smb1"), allow(unused_variables, reason = "for SMB 1 only"))]
fn bind(args: &ServeArgs, options: ServerOptions, printer: &Arc<Printer>) -> Result<Server, Failure> {
    #[cfg(feature = "smb1")]
    let options = smb1::enable(args, options, printer)?;
    Server::bind_all(&args.listen, options).map_err(|(address, error)| {
        let failure = |what: &str, code| Failure::new(code, format!("cannot listen on {address}: {what}"));
        match error.kind() {
            io::ErrorKind::AddrInUse => failure("another program uses the port", code::NETWORK).hint(format!(
                "choose another port with --listen; `ss -ltnp 'sport = :{}'` shows the program",
                address.port()
            )),
            io::ErrorKind::PermissionDenied => failure(
                "ports below 1024 need a privilege",
                code::PERMISSION,
            )
            .hint(
                "use packaging/ropeway-serve.service, or grant the capability with: setcap cap_net_bind_service=ep \
                     $(command -v ropeway); or choose a higher port",
            ),
            io::ErrorKind::AddrNotAvailable => {
                failure("this machine has no such address", code::NETWORK).hint("`ip address` lists its addresses")
            }
            _ => failure(&error.to_string(), code::NETWORK).hint("choose another address with --listen"),
        }
    })
}

fn announcer(
    args: &ServeArgs,
    name: &str,
    (addresses, shares): (&[SocketAddr], &[RequestedShare]),
    printer: &Arc<Printer>,
) -> Option<Announcer> {
    let backups = shares.iter().filter(|share| share.time_machine);
    let backups: Vec<String> = backups.map(|share| share.name.clone()).collect();
    let asked = args.watch.announce;
    if args.watch.no_announce {
        return None;
    }
    // Nobody asked for it: what does not work is no reason to warn.
    let warn = |text: String| asked.then(|| printer.warn(&text));
    match Announcer::start(name, addresses, &backups) {
        Ok((announcer, failures)) => {
            for failure in failures {
                warn(format!("only partly announced: {failure}"));
            }
            Some(announcer)
        }
        // The shares are served anyway.
        Err(why) => {
            warn(format!("not announced: {why}"));
            None
        }
    }
}
