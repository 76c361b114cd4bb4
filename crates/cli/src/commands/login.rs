//! `ropeway login`.

use std::path::Path;

use ropeway_smb_client::Login;
use serde_json::{Map, json};

use super::nodes::Voice;
use crate::args::LoginArgs;
use crate::failure::Failure;
use crate::job;
use crate::place::Place;
use crate::secrets::{Auth, Kept, Means, Ring, Secrets};
use crate::servers;
use crate::url::Server;

/// Runs the command; gives its exit code.
///
/// # Errors
/// The server does not take the password, or no keyring does.
pub(crate) fn run(args: &LoginArgs) -> Result<u8, Failure> {
    let mut voice = Voice::new(args.json);
    if args.list {
        for kept in args.share.keyring.list() {
            show(&kept, &mut voice);
        }
        return Ok(voice.finish());
    }
    let Some(url) = &args.url else {
        return Err(Failure::usage("no server is named").hint("e.g. ropeway login smb://user@host"));
    };
    let options = args.share.options()?;
    let server = server(url)?;
    // A password is to be kept: neither a ticket nor the one that is kept already will do.
    let means = Means {
        auth: Auth::Ntlm,
        keyring: Ring::Off,
        ..Means::of(&args.share)
    };
    let secrets = Secrets::load(&means, &|name| std::env::var_os(name))?;
    let chosen = secrets.login(&server)?;
    let Login::Password {
        user,
        domain,
        password,
    } = chosen.login.clone()
    else {
        return Err(Failure::usage(format!("{server} has no password to keep"))
            .hint("name a user: smb://user@host; guests and nobody log in without"));
    };
    if !args.no_check {
        job::runtime()?.block_on(async {
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
    voice.done();
    voice.line(&format!("the password of {whose} is kept"));
    let mut fields = Map::new();
    fields.insert("url".to_owned(), json!(whose.to_string()));
    fields.insert("action".to_owned(), json!("login"));
    voice.object("item", fields);
    Ok(voice.finish())
}

/// The server of a URL.
///
/// # Errors
/// It is no URL.
pub(super) fn server(argument: &Path) -> Result<Server, Failure> {
    match Place::parse(argument)? {
        Place::Remote(url) => Ok(url.server),
        Place::Local(_) => Err(Failure::usage(format!("{} is no URL", argument.display()))
            .hint("name a server: smb://user@host")),
    }
}

fn show(kept: &Kept, voice: &mut Voice) {
    voice.done();
    voice.line(&match &kept.expires {
        Some(time) => format!("{} (for {time} more)", kept.url),
        None => kept.url.clone(),
    });
    let mut fields = Map::new();
    fields.insert("url".to_owned(), json!(kept.url));
    fields.insert("expires".to_owned(), json!(kept.expires));
    voice.object("login", fields);
}
