//! `ropeway login`.

use std::path::Path;

use ropeway_smb_client::Login;
use serde_json::{Map, json};

use super::nodes::Printer;
use crate::args::LoginArgs;
use crate::failure::Failure;
use crate::job;
use crate::place::Place;
use crate::secrets::{Auth, Keyring, LoginOptions, Secrets, StoredPassword};
use crate::servers;
use crate::url::Server;

/// Runs the command and returns its exit code.
///
/// # Errors
/// The server refuses the password, or the keyring cannot store it.
pub(crate) fn run(args: &LoginArgs) -> Result<u8, Failure> {
    let mut printer = Printer::new(args.json);
    if args.list {
        for kept in args.share.keyring.list() {
            show(&kept, &mut printer);
        }
        return Ok(printer.finish());
    }
    let Some(url) = &args.url else {
        return Err(Failure::usage("no server is given").hint("e.g. ropeway login smb://user@host"));
    };
    let options = args.share.options()?;
    let server = server(url)?;
    // Only a password can be stored: neither a ticket nor the password stored before is used.
    let login_options = LoginOptions {
        auth: Auth::Ntlm,
        keyring: Keyring::Off,
        ..LoginOptions::of(&args.share)
    };
    let secrets = Secrets::load(&login_options, &|name| std::env::var_os(name))?;
    let chosen = secrets.login(&server)?;
    let Login::Password {
        user,
        domain,
        password,
    } = chosen.login.clone()
    else {
        return Err(
            Failure::usage(format!("there is no password to store for {server}"))
                .hint("name a user: smb://user@host; guest and anonymous logins have no password"),
        );
    };
    if !args.no_check {
        job::runtime()?.block_on(async {
            #[cfg(feature = "smb1")]
            if server.is_smb1() {
                let options = args.share.smb1_options()?;
                let client = servers::smb1::connect(&server, chosen, &args.share, options).await?;
                client.close().await;
                return Ok(());
            }
            let client = servers::connect(&server, chosen, options).await?;
            client.close().await;
            Ok(())
        })?;
    }
    let whose = Server {
        user: Some(user),
        domain: Some(domain).filter(|domain| !domain.is_empty()),
        ..server
    };
    args.share.keyring.store(&whose, &password, args.keep_for)?;
    printer.done();
    printer.line(&format!("stored the password of {whose}"));
    let mut fields = Map::new();
    fields.insert("url".to_owned(), json!(whose.to_string()));
    fields.insert("action".to_owned(), json!("login"));
    printer.object("item", fields);
    Ok(printer.finish())
}

/// Returns the server of a URL.
///
/// # Errors
/// The argument is not a URL.
pub(super) fn server(argument: &Path) -> Result<Server, Failure> {
    match Place::parse(argument)? {
        Place::Remote(url) => Ok(url.server),
        Place::Local(_) => Err(Failure::usage(format!("{} is not a URL", argument.display()))
            .hint("name a server: smb://user@host")),
    }
}

fn show(kept: &StoredPassword, printer: &mut Printer) {
    printer.done();
    printer.line(&match &kept.expires {
        Some(time) => format!("{} (for {time} more)", kept.url),
        None => kept.url.clone(),
    });
    let mut fields = Map::new();
    fields.insert("url".to_owned(), json!(kept.url));
    fields.insert("expires".to_owned(), json!(kept.expires));
    printer.object("login", fields);
}
