//! `ropeway logout`.

use serde_json::{Map, json};

use super::login::server;
use super::nodes::Printer;
use crate::args::LogoutArgs;
use crate::failure::{Failure, code};
use crate::url::Server;

/// Runs the command and returns its exit code.
///
/// # Errors
/// There is no such password, or the kernel refuses to remove it.
pub(crate) fn run(args: &LogoutArgs) -> Result<u8, Failure> {
    let mut printer = Printer::new(args.json);
    if args.all {
        for kept in args.keyring.list() {
            args.keyring.forget_stored(&kept)?;
            forgotten(&kept.url, &mut printer);
        }
    }
    for url in &args.urls {
        let result = server(url).and_then(|server| forget(args, &server, &mut printer));
        printer.finish_argument(result, args.urls.len() == 1)?;
    }
    Ok(printer.finish())
}

fn forget(args: &LogoutArgs, server: &Server, printer: &mut Printer) -> Result<(), Failure> {
    let user = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).ok();
    let whose = Server {
        user: server.user.clone().or_else(user),
        ..server.clone()
    };
    if !args.keyring.forget(&whose)? {
        let message = format!("there is no stored password of {whose}");
        return Err(Failure::new(code::SOURCE, message).hint("`ropeway login --list` shows the stored ones"));
    }
    forgotten(&whose.to_string(), printer);
    Ok(())
}

fn forgotten(url: &str, printer: &mut Printer) {
    printer.done();
    printer.line(&format!("removed the password of {url}"));
    let mut fields = Map::new();
    fields.insert("url".to_owned(), json!(url));
    fields.insert("action".to_owned(), json!("logout"));
    printer.object("item", fields);
}
