//! Signals: SIGTERM and SIGINT stop the server, a second one ends the program, SIGHUP reloads
//! users, shares and the audit log.

use std::sync::Arc;

use ropeway_smb_server::ServerHandle;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::accounts::Accounts;
use super::audit::Writer;
use super::handles;
use super::printer::Printer;
use super::settings::check_shares;
use super::shares::{Folders, RequestedShare, requested};
use crate::args::{Command, ServeArgs};
use crate::failure::{Failure, code};
use crate::{boot, config, layers};

/// State that a reload changes.
pub(super) struct Reload {
    pub(super) server: ServerHandle,
    /// The flags at the start.
    pub(super) args: ServeArgs,
    pub(super) accounts: Accounts,
    pub(super) folders: Folders,
    pub(super) audit: Option<Arc<Writer>>,
    pub(super) printer: Arc<Printer>,
}

/// Handles signals from now on, on a thread that lives as long as the process.
///
/// # Errors
/// The system cannot start a thread or register handlers.
pub(super) fn catch(mut reload: Reload) -> Result<(), Failure> {
    let fault = |error: std::io::Error| {
        Failure::new(code::TARGET, format!("cannot catch signals: {error}"))
            .hint("raise the limits of processes and descriptors (ulimit -u, ulimit -n)")
    };
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(fault)?;
    let mut signals = {
        let _inside = runtime.enter();
        Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(fault)?,
            terminate: signal(SignalKind::terminate()).map_err(fault)?,
            hangup: signal(SignalKind::hangup()).map_err(fault)?,
        }
    };
    let work = move || {
        // A reload may wait for far servers, which this runtime must not do.
        while runtime.block_on(signals.next()) == Request::Reload {
            reload.run();
        }
        reload.printer.stopping();
        reload.server.stop();
        while runtime.block_on(signals.next()) == Request::Reload {}
        // Clients' unflushed writes are in the page cache; the server has promised no more than
        // that.
        std::process::exit(i32::from(code::INTERRUPTED));
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(work).map(|_| ()).map_err(fault)
}

#[derive(PartialEq, Eq)]
enum Request {
    Stop,
    Reload,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.interrupt.recv() => Request::Stop,
            _ = self.terminate.recv() => Request::Stop,
            _ = self.hangup.recv() => Request::Reload,
        }
    }
}

impl Reload {
    /// Reloads everything that can change. Parts with errors stay as they were. Clients stay
    /// connected.
    fn run(&mut self) {
        let mut changes = Vec::new();
        match self.accounts.reload() {
            Ok(more) => changes.extend(more),
            Err(failure) => self.printer.unchanged("the users", &failure.message),
        }
        match self.reload_shares() {
            Ok(more) => changes.extend(more),
            Err(failure) => self.printer.unchanged("the shares", &failure.message),
        }
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
        let shares = self.folders.now().count();
        self.printer
            .reloaded(&changes, self.accounts.names().len(), shares);
    }

    fn reload_shares(&mut self) -> Result<Vec<String>, Failure> {
        let args = parse_again()?;
        let wanted = requested(&args)?;
        check_shares(&self.args, &wanted)?;
        let before: Vec<RequestedShare> = self.folders.now().cloned().collect();
        handles::check_reload(&before, &wanted)?;
        let mut changes = restarts(&self.args, &args);
        if self.folders.is_current(&wanted) {
            return Ok(changes);
        }
        let shares = self.folders.set(wanted)?;
        self.server.set_shares(shares);
        for share in self.folders.now() {
            match before.iter().find(|old| old.is_called(&share.name)) {
                None => changes.push(format!("share {} added: {}", share.name, share.shown())),
                Some(old) if old != share => {
                    changes.push(format!("share {} is now {}", share.name, share.shown()));
                }
                Some(_) => {}
            }
        }
        for old in &before {
            if !self.folders.now().any(|share| share.is_called(&old.name)) {
                changes.push(format!("share {} removed", old.name));
            }
        }
        if changes.is_empty() {
            changes.push("reopened folders that were replaced".to_owned());
        }
        Ok(changes)
    }
}

/// Parses the command line again, over the present configuration.
fn parse_again() -> Result<ServeArgs, Failure> {
    let config = config::Config::load(&boot::config_file())?;
    let arguments = std::env::args_os().collect();
    match layers::parse(arguments, &|name| std::env::var_os(name), &config)? {
        layers::Parsed::Command(command) => match *command {
            Command::Serve(args) => Ok(*args),
            _ => Err(Failure::usage("the command line is no longer that of serve")),
        },
        layers::Parsed::Text { .. } => Err(Failure::usage("the command line asks for help")),
    }
}

/// Returns the changes in the configuration that need a restart.
fn restarts(old: &ServeArgs, new: &ServeArgs) -> Vec<String> {
    let shown = |args: &ServeArgs| {
        let login = (
            &args.login.users,
            &args.login.user,
            &args.login.password_file,
            (args.login.anonymous, args.login.guest),
            (&args.login.keytab, &args.login.service_principal),
            args.login.kerberos_users,
        );
        let login = format!("{login:?}");
        let protocol = format!("{:?}", args.protocol);
        let watch = format!("{:?}", args.watch);
        let listen = format!("{:?} {:?}", args.listen, args.name);
        let far = format!("{:?}", args.far);
        [
            ("far servers", far),
            ("addresses", listen),
            ("logins", login),
            ("protocol", protocol),
            ("monitoring", watch),
        ]
    };
    let pairs = shown(old).into_iter().zip(shown(new));
    pairs
        .filter(|(old, new)| old != new)
        .map(|((what, _), _)| format!("{what}: changed in the configuration; restart the server to apply it"))
        .collect()
}
