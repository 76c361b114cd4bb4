//! `ropeway serve`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb::server::{Server, ServerHandle, ServerOptions, Share};
use ropeway_smb::{Encryption, Password, Signing};
use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::secret::NtHash;
use ropeway_smb_proto::server::{Accounts, Sealing};
use ropeway_smb_proto::upcase;
use ropeway_smb_proto::wire::Text;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::ServeArgs;
use crate::failure::{Failure, code};

/// Runs the command; gives its exit code.
///
/// # Errors
/// A folder cannot be shared, the address cannot be had.
pub(crate) fn run(args: &ServeArgs) -> Result<u8, Failure> {
    let shares = args
        .shares
        .iter()
        .map(|share| open_share(share, args.read_only))
        .collect::<Result<Vec<_>, _>>()?;
    let (user, password, is_new) = account(args)?;
    let mut options = ServerOptions::new(&host_name(), accounts(&user, &password));
    options.config.signing_required = args.sign == Signing::Required;
    options.config.sealing = match args.encrypt {
        Encryption::Off => Sealing::Off,
        Encryption::Desired => Sealing::Offered,
        Encryption::Required => Sealing::Required,
    };
    let names: Vec<String> = shares.iter().map(|share| share.name.clone()).collect();
    options.shares = shares;
    let cannot = |error: &std::io::Error| {
        Failure::new(code::NETWORK, format!("cannot serve on {}: {error}", args.listen))
    };
    let server = Server::bind(args.listen, options).map_err(|error| cannot(&error))?;
    let address = server.local_addr().map_err(|error| cannot(&error))?;
    for name in names {
        crate::ui::messages::print(&format!("smb://{user}@{address}/{name}\n"));
    }
    if is_new {
        crate::ui::messages::print(&format!("pass phrase: {}\n", password.expose()));
    }
    stop_on_signals(server.handle())?;
    server.run().map_err(|error| cannot(&error))?;
    crate::ui::messages::print("stopped; everything written is durable\n");
    Ok(0)
}

/// `NAME=DIR`, or `DIR` by its own name.
fn open_share(text: &str, read_only: bool) -> Result<Share, Failure> {
    let (name, folder) = match text.split_once('=') {
        Some((name, folder)) if !name.is_empty() && !name.contains('/') => {
            (name.to_owned(), PathBuf::from(folder))
        }
        _ => {
            let folder = PathBuf::from(text);
            let whole = folder.canonicalize().unwrap_or_else(|_| folder.clone());
            let name = whole
                .file_name()
                .map_or_else(|| "root".to_owned(), |name| name.to_string_lossy().into_owned());
            (name, folder)
        }
    };
    let store = open_store(&folder)?;
    let mut share = Share::new(&name, Arc::new(store));
    share.read_only = read_only;
    Ok(share)
}

fn open_store(folder: &Path) -> Result<LocalStore, Failure> {
    LocalStore::open(folder, &StoreOptions::default()).map_err(|error| {
        Failure::new(
            code::SOURCE,
            format!("cannot share {}: {error}", folder.display()),
        )
    })
}

/// The user, its password, and whether it was made just now.
fn account(args: &ServeArgs) -> Result<(String, Password, bool), Failure> {
    let user = args.user.clone().unwrap_or_else(|| "ropeway".to_owned());
    if let Some(file) = &args.password_file {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(
                code::USAGE,
                format!("cannot read the password file {}: {error}", file.display()),
            )
        })?;
        let line = text.lines().next().unwrap_or_default();
        return Ok((user, Password::from(line), false));
    }
    if let Ok(password) = std::env::var("ROPEWAY_PASSWORD") {
        return Ok((user, Password::new(password), false));
    }
    let mut bytes = [0_u8; 16];
    _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    let phrase: Vec<String> = bytes
        .chunks(4)
        .map(|part| part.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    Ok((user, Password::new(phrase.join("-")), true))
}

fn accounts(user: &str, password: &Password) -> Accounts {
    let user = Text::from(user);
    let hash = *nt_hash(password).expose();
    Arc::new(move |name: &Text, _domain: &Text| upcase::equal(name, &user).then(|| NtHash::from_bytes(hash)))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn stop_on_signals(handle: ServerHandle) -> Result<(), Failure> {
    let runtime = crate::job::runtime()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            handle.stop();
        });
    });
    Ok(())
}
