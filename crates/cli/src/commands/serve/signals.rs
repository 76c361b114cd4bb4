//! SIGTERM and SIGINT stop the server, a second one ends the program; SIGHUP reads users, shares and the audit again.

use std::sync::Arc;

use ropeway_smb_server::ServerHandle;
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::accounts::Accounts;
use super::audit::Writer;
use super::settings::check_shares;
use super::shares::{Folders, Wanted, wanted};
use super::voice::Voice;
use crate::args::{Command, ServeArgs};
use crate::failure::{Failure, code};
use crate::{boot, config, layers};

/// What a reload changes.
pub(super) struct Reload {
    pub(super) server: ServerHandle,
    /// As the server was started.
    pub(super) args: ServeArgs,
    pub(super) accounts: Accounts,
    pub(super) folders: Folders,
    pub(super) audit: Option<Arc<Writer>>,
    pub(super) voice: Arc<Voice>,
}

/// Catches signals from now on, on a thread that lives as long as the process.
///
/// # Errors
/// The system gives no thread or no signals.
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
        runtime.block_on(async {
            while signals.next().await == Asked::Reload {
                reload.run();
            }
            reload.voice.stopping();
            reload.server.stop();
            while signals.next().await == Asked::Reload {}
            // Clients' unflushed writes are in the kernel's hands, and nothing else was promised.
            std::process::exit(i32::from(code::INTERRUPTED));
        });
    };
    let thread = std::thread::Builder::new().name("signals".to_owned());
    thread.spawn(work).map(|_| ()).map_err(fault)
}

#[derive(PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.hangup.recv() => Asked::Reload,
        }
    }
}

impl Reload {
    /// Reads everything again that can change; what is wrong stays as it was. Clients stay connected.
    fn run(&mut self) {
        let mut changes = Vec::new();
        match self.accounts.reload() {
            Ok(more) => changes.extend(more),
            Err(failure) => self.voice.kept("the users", &failure.message),
        }
        match self.reload_shares() {
            Ok(more) => changes.extend(more),
            Err(failure) => self.voice.kept("the shares", &failure.message),
        }
        if let Some(audit) = &self.audit {
            audit.reopen();
        }
        let shares = self.folders.now().count();
        self.voice.reloaded(&changes, self.accounts.names().len(), shares);
    }

    fn reload_shares(&mut self) -> Result<Vec<String>, Failure> {
        let args = parse_again()?;
        let wanted = wanted(&args)?;
        check_shares(&self.args, &wanted)?;
        let before: Vec<Wanted> = self.folders.now().cloned().collect();
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
            changes.push("folders that are others now were opened again".to_owned());
        }
        Ok(changes)
    }
}

/// The command line once more, over the configuration as it is now.
fn parse_again() -> Result<ServeArgs, Failure> {
    let config = config::Config::load(&boot::config_file())?;
    let arguments = std::env::args_os().collect();
    match layers::parse(arguments, &|name| std::env::var_os(name), &config)? {
        layers::Parsed::Command(command) => match *command {
            Command::Serve(args) => Ok(*args),
            _ => Err(Failure::usage("the command line is another one now")),
        },
        layers::Parsed::Text { .. } => Err(Failure::usage("the command line asks for help")),
    }
}

/// What the configuration changed that only a new start takes.
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
        [
            ("where it listens", listen),
            ("who logs in how", login),
            ("the protocol", protocol),
            ("how it is watched", watch),
        ]
    };
    let pairs = shown(old).into_iter().zip(shown(new));
    pairs
        .filter(|(old, new)| old != new)
        .map(|((what, _), _)| format!("{what}: changed in the configuration; takes a restart"))
        .collect()
}
