//! The web page of this process (`--http`).

use ropeway_live::Live;
use ropeway_page::{Page, StartError, Token};
use serde_json::{Value, json};

use crate::args::HttpArgs;
use crate::failure::{Failure, code};
use crate::secrets::private;

/// Maximum size in bytes of a file with a token: far more than one line needs.
const FILE_BYTES_MAX: usize = 4 << 10;

/// Starts the page, if the flags ask for one.
///
/// # Errors
/// The address cannot be used, or the file has no token that only its owner can read.
pub(crate) fn start(args: &HttpArgs, live: &Live) -> Result<Option<Page>, Failure> {
    let Some(address) = args.http else {
        return Ok(None);
    };
    let token = token(args)?;
    let page = Page::start(address, token, live.handle());
    page.map(Some).map_err(|error| match error {
        StartError::Io(error) => Failure::of_end(
            format!("cannot serve HTTP on {address}: {error}"),
            &error,
            code::NETWORK,
        )
        .hint("choose another address with --http"),
        StartError::NoRandom => Failure::new(code::PERMISSION, "the kernel returns no random numbers")
            .hint("give a token with --http-token-file"),
    })
}

fn token(args: &HttpArgs) -> Result<Option<Token>, Failure> {
    let Some(path) = &args.http_token_file else {
        return Ok(None);
    };
    let place = path.display();
    let hint = "write 32 random letters and digits into a 0600 file";
    let text = private::text(path, "the token file", FILE_BYTES_MAX)?
        .ok_or_else(|| Failure::usage(format!("there is no token file {place}")).hint(hint))?;
    let token = Token::of_file(&text);
    let wrong = |why| Failure::usage(format!("the token file {place} has no token: {why}")).hint(hint);
    token.map(Some).map_err(wrong)
}

/// Returns what is told of the page in JSON.
pub(crate) fn listening(page: &Page) -> Value {
    json!({
        "type": "listening",
        "http": page.address().to_string(),
        "http_url": page.url(),
    })
}
