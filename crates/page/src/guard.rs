//! Who may see the page, and who may change something with it. Pure: heads of requests in, verdicts
//! out.
//!
//! * On a loopback address everybody on this machine may look, unless a token was given. A request
//!   must then name a loopback host: a foreign website whose name was pointed at 127.0.0.1 (DNS
//!   rebinding) does not.
//! * On other addresses, and to change something, the token is needed: as `Authorization: Bearer`, or
//!   once as `?token=`, which sets a cookie. The cookie holds a number of this process, not the token.
//! * Requests that another website makes are refused; with the cookie, forms carry a number that only
//!   our pages know.

use std::net::IpAddr;

use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use rustix::rand::{GetRandomFlags, getrandom};

/// Shortest token that a file may have, and the longest. Guesses: 16 characters at random are out of
/// reach, and longer ones than 200 fit into no line.
pub(crate) const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=200;

/// The token of a page.
#[derive(Clone)]
pub enum Token {
    /// From a file: needed for everything.
    Given(String),
    /// Made for this run. On a loopback address it is needed only to change something.
    Made(String),
}

impl Token {
    /// Makes one of 128 bits.
    ///
    /// # Errors
    /// The kernel returns no random numbers.
    pub fn random() -> Result<Self, NoRandom> {
        random().map(Self::Made)
    }

    /// Takes one from a file: one line, that fits into an address.
    ///
    /// # Errors
    /// It is too short, too long, or has other characters; the text says so.
    pub fn of_file(text: &str) -> Result<Self, String> {
        let token = text.lines().next().unwrap_or_default().trim();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if !TOKEN_LENGTHS.contains(&token.len()) {
            let (least, most) = (TOKEN_LENGTHS.start(), TOKEN_LENGTHS.end());
            return Err(format!("its first line must have {least} to {most} characters"));
        }
        match token.bytes().all(is_plain) {
            true => Ok(Self::Given(token.to_owned())),
            false => Err("its first line may have letters, digits, and -._~ only".to_owned()),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Given(text) | Self::Made(text) => text,
        }
    }
}

/// The kernel returned no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandom;

/// What a request may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// Look.
    Reader,
    /// Look, and change something: it has the cookie, and forms must have our number.
    Owner,
    /// Likewise, with the token itself.
    Program,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It names a host that is not this machine's own.
    Host,
    /// Another website makes it.
    Foreign,
    /// It has no token.
    NoToken,
    /// It has another token.
    WrongToken,
}

/// Decides on requests.
pub(crate) struct Guard {
    token: blake3::Hash,
    /// What the cookie holds.
    session: String,
    /// What forms hold.
    form: String,
    cookie: String,
    /// Whether everybody on this machine may look.
    is_open: bool,
}

impl Guard {
    /// Makes the guard of an address.
    ///
    /// # Errors
    /// The kernel returns no random numbers.
    pub(crate) fn new(token: &Token, address: std::net::SocketAddr) -> Result<Self, NoRandom> {
        Ok(Self {
            token: hash(token.text()),
            session: random()?,
            form: random()?,
            // Cookies of a host are shared by all its ports.
            cookie: format!("ropeway_{}", address.port()),
            is_open: address.ip().is_loopback() && matches!(token, Token::Made(_)),
        })
    }

    /// Returns what the forms of our pages hold.
    pub(crate) fn form(&self) -> &str {
        &self.form
    }

    /// Returns whether a form is one of ours.
    pub(crate) fn is_own_form(&self, number: &str) -> bool {
        hash(number) == hash(&self.form)
    }

    /// Decides what a request may do.
    ///
    /// # Errors
    /// It is refused.
    pub(crate) fn judge(&self, head: &Parts) -> Result<Asker, Refusal> {
        if is_foreign(head) {
            return Err(Refusal::Foreign);
        }
        if let Some(given) = head.headers.get(header::AUTHORIZATION) {
            let given = given.to_str().ok().and_then(|given| given.split_once(' '));
            return match given {
                Some((kind, token)) if kind.eq_ignore_ascii_case("bearer") && self.is_token(token.trim()) => {
                    Ok(Asker::Program)
                }
                _ => Err(Refusal::WrongToken),
            };
        }
        if self.has_cookie(&head.headers) {
            return Ok(Asker::Owner);
        }
        match self.is_open {
            false => Err(Refusal::NoToken),
            true => self.is_host_own(head).map(|()| Asker::Reader),
        }
    }

    /// Checks the host of a request that needs no token.
    ///
    /// # Errors
    /// It names a host that is not this machine's own.
    pub(crate) fn is_host_own(&self, head: &Parts) -> Result<(), Refusal> {
        // A browser always names it.
        match head.headers.get(header::HOST) {
            Some(host) if self.is_open && !host.to_str().is_ok_and(is_loopback) => Err(Refusal::Host),
            _ => Ok(()),
        }
    }

    /// Returns whether this is the token.
    pub(crate) fn is_token(&self, given: &str) -> bool {
        // Hashes are compared in constant time.
        TOKEN_LENGTHS.contains(&given.len()) && hash(given) == self.token
    }

    /// Returns the header that sets the cookie.
    pub(crate) fn set_cookie(&self) -> String {
        format!(
            "{}={}; HttpOnly; SameSite=Strict; Path=/",
            self.cookie, self.session
        )
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let all = headers.get_all(header::COOKIE).into_iter();
        let mut cookies = all
            .filter_map(|line| line.to_str().ok())
            .flat_map(|line| line.split(';'));
        cookies.any(|cookie| match cookie.trim().split_once('=') {
            Some((name, value)) => name == self.cookie && hash(value) == hash(&self.session),
            None => false,
        })
    }
}

/// Whether another website makes the request. Browsers say so; other programs say neither.
fn is_foreign(head: &Parts) -> bool {
    let text = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if let Some(origin) = text("origin") {
        let host = text("host").unwrap_or("?");
        let own = |scheme: &str| origin.strip_prefix(scheme) == Some(host);
        return !own("http://") && !own("https://");
    }
    // A link on another website may lead here, but not a picture, a script or a frame.
    let is_visit =
        || text("sec-fetch-mode") == Some("navigate") && text("sec-fetch-dest") == Some("document");
    match text("sec-fetch-site") {
        None | Some("same-origin" | "none") => false,
        Some(_) => !is_visit(),
    }
}

/// Whether a host, with or without a port, is a name or an address of the loopback.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => return false,
        },
        None => match host.rsplit_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return false;
    }
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

fn hash(text: &str) -> blake3::Hash {
    blake3::hash(text.as_bytes())
}

/// Returns 128 random bits as text.
fn random() -> Result<String, NoRandom> {
    let mut bytes = [0_u8; 16];
    // getrandom(2) returns requests of up to 256 bytes completely.
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        _ => Err(NoRandom),
    }
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use proptest::prelude::*;

    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn guard(address: &str, token: Token) -> Guard {
        Guard::new(&token, address.parse().unwrap()).unwrap()
    }

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn on_the_loopback_everybody_may_look_and_the_token_changes_things() {
        let guard = guard("127.0.0.1:9450", Token::Made(TOKEN.into()));
        let judge = |headers: &[(&str, &str)]| guard.judge(&head(headers));
        assert_eq!(judge(&[]), Ok(Asker::Reader));
        for host in [
            "localhost",
            "LOCALHOST.:80",
            "127.0.0.1:9450",
            "127.9.9.9",
            "[::1]:9450",
            "a.localhost:1",
        ] {
            assert_eq!(judge(&[("host", host)]), Ok(Asker::Reader), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9450",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "[::1",
            "[fe80::1]",
            "",
            "127.0.0.1:x",
            "192.0.2.1",
        ] {
            assert_eq!(judge(&[("host", host)]), Err(Refusal::Host), "{host}");
        }
        let bearer = format!("Bearer {TOKEN}");
        assert_eq!(
            judge(&[("host", "proxy.example"), ("authorization", &bearer)]),
            Ok(Asker::Program)
        );
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer",
            "Basic eDp5",
            &format!("Bearer {}", "x".repeat(5000)),
        ] {
            assert_eq!(judge(&[("authorization", wrong)]), Err(Refusal::WrongToken));
        }
        let cookie = guard.set_cookie();
        let (cookie, flags) = cookie.split_once(';').unwrap();
        assert!(flags.contains("HttpOnly") && flags.contains("SameSite=Strict"));
        assert!(!cookie.contains(TOKEN));
        let both = format!("ropeway_1=5; {cookie}");
        assert_eq!(
            judge(&[("host", "evil.example"), ("cookie", &both)]),
            Ok(Asker::Owner)
        );
        assert_eq!(
            judge(&[("cookie", &format!("ropeway_9450={TOKEN}"))]),
            Ok(Asker::Reader)
        );
    }

    #[test]
    fn elsewhere_nothing_is_given_without_the_token() {
        for (address, token) in [
            ("0.0.0.0:80", Token::Made(TOKEN.into())),
            ("127.0.0.1:80", Token::Given(TOKEN.into())),
        ] {
            let guard = guard(address, token);
            let local = head(&[("host", "127.0.0.1")]);
            assert_eq!(guard.judge(&local), Err(Refusal::NoToken));
            let bearer = format!("bearer {TOKEN}");
            let program = head(&[("host", "nas"), ("authorization", &bearer)]);
            assert_eq!(guard.judge(&program), Ok(Asker::Program));
        }
    }

    #[test]
    fn other_websites_are_refused_with_and_without_the_cookie() {
        let guard = guard("127.0.0.1:9450", Token::Made(TOKEN.into()));
        let cookie = guard.set_cookie();
        let cookie = cookie.split(';').next().unwrap();
        let foreign: &[&[(&str, &str)]] = &[
            &[("origin", "http://evil.example")],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:8000")],
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
            &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")],
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ],
        ];
        for headers in foreign {
            let all = [&[("host", "127.0.0.1:9450"), ("cookie", cookie)], *headers].concat();
            assert_eq!(guard.judge(&head(&all)), Err(Refusal::Foreign), "{headers:?}");
        }
        for headers in [
            &[("origin", "http://127.0.0.1:9450"), ("host", "127.0.0.1:9450")][..],
            &[("sec-fetch-site", "same-origin"), ("sec-fetch-mode", "cors")],
            &[
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ],
        ] {
            assert_eq!(guard.judge(&head(headers)), Ok(Asker::Reader), "{headers:?}");
        }
    }

    #[test]
    fn tokens_of_files_fit_into_an_address() {
        assert!(matches!(Token::of_file("0123456789abcdef\n#"), Ok(Token::Given(token)) if token == TOKEN));
        for bad in ["", "short", "0123456789 abcdef", "0123456789ä012345"] {
            assert!(Token::of_file(bad).is_err(), "{bad}");
        }
        assert!(Token::of_file(&"x".repeat(201)).is_err());
        let (one, two) = (random().unwrap(), random().unwrap());
        assert!(one != two && one.len() == 32);
    }

    proptest! {
        #[test]
        fn no_other_token_passes(given in "[!-~]{0,40}", host in "\\PC{0,30}") {
            let guard = guard("[::]:1", Token::Given(TOKEN.into()));
            prop_assume!(given != TOKEN);
            prop_assert!(!guard.is_token(&given));
            let _ = is_loopback(&host);
        }
    }
}
