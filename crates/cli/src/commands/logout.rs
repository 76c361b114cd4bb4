//! `ropeway logout`.

use serde_json::{Map, json};

use super::login::server;
use super::nodes::Voice;
use crate::args::LogoutArgs;
use crate::failure::{Failure, code};
use crate::url::Server;

/// Runs the command; gives its exit code.
///
/// # Errors
/// There is no such password, or the kernel keeps it.
pub(crate) fn run(args: &LogoutArgs) -> Result<u8, Failure> {
    let mut voice = Voice::new(args.json);
    if args.all {
        for kept in args.keyring.list() {
            args.keyring.forget_kept(&kept)?;
            forgotten(&kept.url, &mut voice);
        }
    }
    for url in &args.urls {
        let result = server(url).and_then(|server| forget(args, &server, &mut voice));
        voice.take(result, args.urls.len() == 1)?;
    }
    Ok(voice.finish())
}

fn forget(args: &LogoutArgs, server: &Server, voice: &mut Voice) -> Result<(), Failure> {
    let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
    let whose = Server {
        user: server.user.clone().or_else(user),
        ..server.clone()
    };
    if !args.keyring.forget(&whose)? {
        let message = format!("no password of {whose} is kept");
        return Err(Failure::new(code::SOURCE, message).hint("`ropeway login --list` shows whose are"));
    }
    forgotten(&whose.to_string(), voice);
    Ok(())
}

fn forgotten(url: &str, voice: &mut Voice) {
    voice.done();
    voice.line(&format!("the password of {url} is forgotten"));
    let mut fields = Map::new();
    fields.insert("url".to_owned(), json!(url));
    fields.insert("action".to_owned(), json!("logout"));
    voice.object("item", fields);
}
