//! Logins to servers. A password never comes from a command line and never goes into a log.
//!
//! The login for `smb://user@host/…` is the first of these that exists:
//! 1. a `--credentials` file whose `username` is that user (or any file, if the URL names no user),
//! 2. `ROPEWAY_PASSWORD`,
//! 3. a Kerberos ticket of that user (or any ticket, if no user is named), if Kerberos is built in,
//! 4. the keyring, where `ropeway login` stores passwords,
//! 5. the terminal, without echo.
//!
//! `--auth ntlm` skips 3; `--auth kerberos` uses 3 only. If a URL names no user, the user is that
//! of the first credentials file, else `$USER`. Guest and anonymous sessions must be requested by
//! name: the user `guest` in the URL; the user `anonymous`, or `--anonymous` for URLs without a
//! user.

mod file;
mod keyring;
mod memory;
pub(crate) mod private;
pub(crate) mod prompt;

use std::ffi::OsString;
use std::path::PathBuf;

use ropeway_smb_client::{Login, NtHash, Password};
use ropeway_smb_proto::auth::ntlm::nt_hash;

use crate::args::ShareArgs;
use crate::failure::{Failure, code};
use crate::url::{Address, Server};
use file::Credentials;
pub(crate) use keyring::{Keyring, StoredPassword};
pub(crate) use memory::protect_memory;

/// Environment variable for the password.
pub(crate) const VARIABLE: &str = "ROPEWAY_PASSWORD";

/// Login methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth {
    /// Whatever is available.
    Auto,
    /// NTLM with a password.
    Ntlm,
    /// A Kerberos ticket.
    Kerberos,
}

/// The flags that affect logins.
#[derive(Clone, Debug)]
pub(crate) struct LoginOptions {
    pub(crate) credentials: Vec<PathBuf>,
    pub(crate) anonymous: bool,
    pub(crate) auth: Auth,
    pub(crate) keyring: Keyring,
}

impl LoginOptions {
    /// Takes them from the flags.
    pub(crate) fn of(args: &ShareArgs) -> Self {
        Self {
            credentials: args.credentials.clone(),
            anonymous: args.anonymous,
            auth: args.auth,
            keyring: args.keyring,
        }
    }
}

/// A login and its origin, which decides the hint if the server refuses it.
#[derive(Clone)]
pub(crate) struct ChosenLogin {
    pub(crate) login: Login,
    pub(crate) source: Source,
}

/// Origin of a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The URL or a flag gives the whole login.
    Named,
    /// A credentials file.
    File,
    /// [`VARIABLE`].
    Variable,
    /// A Kerberos ticket.
    Ticket,
    /// The keyring.
    Keyring,
    /// The terminal.
    Typed,
}

/// Asks the user for a password; `None` if there is no terminal.
type Ask = Box<dyn Fn(&str) -> Result<Option<Password>, Failure> + Send + Sync>;
/// Returns whether a principal has a ticket for a host.
type HasTicket = Box<dyn Fn(Option<&str>, &str) -> bool + Send + Sync>;
/// Returns the stored password for a server.
type StoredPasswordFor = Box<dyn Fn(&Server) -> Option<Password> + Send + Sync>;

/// A user's secret.
#[derive(Clone)]
enum Secret {
    /// The password as given.
    Clear(Password),
    /// The hash that a login needs.
    Hash(NtHash),
}

impl Secret {
    fn login(self, domain: String, user: String) -> Login {
        match self {
            Self::Clear(password) => Login::Password {
                domain,
                user,
                password,
            },
            Self::Hash(hash) => Login::Hash { domain, user, hash },
        }
    }

    fn hashed(self) -> Self {
        match self {
            Self::Clear(password) => Self::Hash(nt_hash(&password)),
            hash => hash,
        }
    }
}

/// Finds the login for a server.
pub(crate) struct Secrets {
    files: Vec<Credentials>,
    password: Option<Secret>,
    local_user: Option<String>,
    anonymous: bool,
    auth: Auth,
    has_ticket: HasTicket,
    stored_password: StoredPasswordFor,
    ask: Ask,
}

impl Secrets {
    /// Reads the credentials files and the environment.
    ///
    /// # Errors
    /// A credentials file is not private, cannot be read, or is malformed.
    pub(crate) fn load(
        login_options: &LoginOptions,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        protect_memory();
        let files = login_options.credentials.iter().map(|path| file::read(path));
        let password = match environment(VARIABLE).map(OsString::into_string) {
            None => None,
            Some(Ok(text)) => Some(Secret::Clear(Password::new(text))),
            Some(Err(_)) => {
                return Err(Failure::usage(format!("{VARIABLE} is not UTF-8"))
                    .hint("set it to UTF-8 text, or use --credentials FILE"));
            }
        };
        let name = |variable| environment(variable).and_then(|name| name.into_string().ok());
        let ring = login_options.keyring;
        Ok(Self {
            files: files.collect::<Result<_, _>>()?,
            password,
            local_user: name("USER")
                .or_else(|| name("LOGNAME"))
                .filter(|name| !name.is_empty()),
            anonymous: login_options.anonymous,
            auth: login_options.auth,
            has_ticket: Box::new(|principal, host| ropeway_smb_gss::kerberos_ticket(principal, host).is_ok()),
            stored_password: Box::new(move |server| ring.password(server)),
            ask: Box::new(prompt::ask),
        })
    }

    /// Replaces clear passwords by hashes, for commands that keep them for more servers.
    #[must_use]
    pub(crate) fn hashed(mut self) -> Self {
        self.password = self.password.map(Secret::hashed);
        for file in &mut self.files {
            file.password = file.password.take().map(Secret::hashed);
        }
        self
    }

    /// Returns the login for a server. May ask the user, or a KDC.
    ///
    /// # Errors
    /// There is no password, or no user is named.
    pub(crate) fn login(&self, server: &Server) -> Result<ChosenLogin, Failure> {
        let named = |login| {
            Ok(ChosenLogin {
                login,
                source: Source::Named,
            })
        };
        match &server.user {
            Some(user) if user.eq_ignore_ascii_case("guest") => return named(Login::Guest),
            Some(user) if user.eq_ignore_ascii_case("anonymous") => return named(Login::Anonymous),
            None if self.anonymous => return named(Login::Anonymous),
            _ => {}
        }
        let file = self.files.iter().find(|file| file.is_of(server));
        let named_user = server.user.as_ref().or(file.and_then(|file| file.user.as_ref()));
        let domain = server
            .domain
            .as_ref()
            .or(file.and_then(|file| file.domain.as_ref()));
        let principal = named_user.map(|user| principal(user, domain));
        let by_ticket = |source| ChosenLogin {
            login: Login::Kerberos {
                principal: principal.clone(),
            },
            source,
        };
        if self.auth == Auth::Kerberos {
            return Ok(by_ticket(Source::Ticket));
        }
        let given = match file.and_then(|file| file.password.clone()) {
            Some(password) => Some((password, Source::File)),
            None => self.password.clone().map(|password| (password, Source::Variable)),
        };
        let may_use_ticket = given.is_none() && self.auth == Auth::Auto && !server.is_smb1();
        if may_use_ticket && (self.has_ticket)(principal.as_deref(), &server.host) {
            return Ok(by_ticket(Source::Ticket));
        }
        let Some(user) = named_user.or(self.local_user.as_ref()) else {
            return Err(
                Failure::usage(format!("no user is given for {}", Address(server))).hint(format!(
                    "name the user: {}user@{}/…, or use --anonymous",
                    server.prefix(),
                    Address(server)
                )),
            );
        };
        let login_server = Server {
            user: Some(user.clone()),
            domain: domain.cloned(),
            ..server.clone()
        };
        let (secret, source) = match given {
            Some(given) => given,
            None => {
                let (password, source) = self.stored_or_typed_password(&login_server)?;
                (Secret::Clear(password), source)
            }
        };
        Ok(ChosenLogin {
            login: secret.login(domain.cloned().unwrap_or_default(), user.clone()),
            source,
        })
    }

    fn stored_or_typed_password(&self, login_server: &Server) -> Result<(Password, Source), Failure> {
        if let Some(password) = (self.stored_password)(login_server) {
            return Ok((password, Source::Keyring));
        }
        let (user, address) = (
            login_server.user.as_deref().unwrap_or_default(),
            Address(login_server),
        );
        let typed = (self.ask)(&format!("Password of {user} at {address}: "))?;
        typed.map(|password| (password, Source::Typed)).ok_or_else(|| {
            Failure::new(
                code::PERMISSION,
                format!("there is no password for {user} at {address}, and no terminal to ask on"),
            )
            .hint(format!(
                "set {VARIABLE}, give --credentials FILE with username= and password= lines, or store it with `ropeway login`"
            ))
        })
    }
}

/// Returns the Kerberos principal of a user: `user@REALM`, or `user` alone if there is no domain or
/// it is a short name.
fn principal(user: &str, domain: Option<&String>) -> String {
    match domain {
        Some(domain) if domain.contains('.') && !user.contains('@') => {
            format!("{user}@{}", domain.to_uppercase())
        }
        _ => user.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::SmbUrl;

    fn server(url: &str) -> Server {
        SmbUrl::parse(url.as_bytes()).unwrap().server
    }

    fn file(user: Option<&str>, password: Option<&str>, domain: Option<&str>) -> Credentials {
        Credentials {
            user: user.map(str::to_owned),
            password: password.map(|text| Secret::Clear(Password::from(text))),
            domain: domain.map(str::to_owned),
        }
    }

    fn secrets(files: Vec<Credentials>, variable: Option<&str>, typed: Option<&'static str>) -> Secrets {
        Secrets {
            files,
            password: variable.map(|text| Secret::Clear(Password::from(text))),
            local_user: Some("me".to_owned()),
            anonymous: false,
            auth: Auth::Auto,
            has_ticket: Box::new(|_, _| false),
            stored_password: Box::new(|_| None),
            ask: Box::new(move |prompt| {
                assert!(prompt.ends_with(": "), "{prompt}");
                Ok(typed.map(Password::from))
            }),
        }
    }

    /// Returns domain, user and password.
    fn password(secrets: &Secrets, url: &str) -> (String, String, String) {
        match secrets.login(&server(url)).unwrap().login {
            Login::Password {
                domain,
                user,
                password,
            } => (domain, user, password.expose().to_owned()),
            other => panic!("{other:?}"),
        }
    }

    fn expect(secrets: &Secrets, url: &str, expected: [&str; 3]) {
        let (domain, user, password) = password(secrets, url);
        assert_eq!([domain.as_str(), &user, &password], expected, "{url}");
    }

    #[test]
    fn a_file_precedes_the_variable_which_precedes_the_terminal() {
        let files = || {
            vec![
                file(Some("ann"), Some("a"), Some("WORK")),
                file(Some("bob"), None, None),
            ]
        };
        let all = secrets(files(), Some("variable"), Some("typed"));
        expect(&all, "smb://ann@nas/s", ["WORK", "ann", "a"]);
        expect(&all, "smb://ANN@nas/s", ["WORK", "ANN", "a"]);
        // The same user name in another domain is another user.
        expect(&all, "smb://HOME;ann@nas/s", ["HOME", "ann", "variable"]);
        expect(&all, "smb://nas/s", ["WORK", "ann", "a"]);
        expect(&all, "smb://bob@nas/s", ["", "bob", "variable"]);
        let typed = secrets(files(), None, Some("typed"));
        expect(&typed, "smb://carl@nas/s", ["", "carl", "typed"]);
        expect(
            &secrets(Vec::new(), None, Some("t")),
            "smb://nas/s",
            ["", "me", "t"],
        );
    }

    #[test]
    fn secrets_can_be_reduced_to_hashes() {
        let files = vec![file(Some("ann"), Some("a"), Some("WORK"))];
        let hashed = secrets(files, Some("variable"), None).hashed();
        for (url, user, password) in [
            ("smb://ann@nas/s", "ann", "a"),
            ("smb://carl@nas/s", "carl", "variable"),
        ] {
            match hashed.login(&server(url)).unwrap().login {
                Login::Hash {
                    user: found, hash, ..
                } => {
                    assert_eq!(found, user);
                    assert_eq!(hash.expose(), nt_hash(&Password::from(password)).expose());
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn without_a_password_there_is_no_login() {
        let failure = secrets(Vec::new(), None, None)
            .login(&server("smb://ann@[fd00::7]/s"))
            .err()
            .unwrap();
        assert_eq!(failure.code, code::PERMISSION);
        assert!(failure.message.contains("ann at [fd00::7]"), "{failure:?}");
        let mut without_user = secrets(Vec::new(), Some("x"), None);
        without_user.local_user = None;
        let failure = without_user.login(&server("smb://nas/s")).err().unwrap();
        assert_eq!(failure.code, code::USAGE);
    }

    #[test]
    fn guest_and_anonymous_logins_need_their_name() {
        let mut secrets = secrets(Vec::new(), Some("x"), None);
        let login =
            |secrets: &Secrets, url: &str| format!("{:?}", secrets.login(&server(url)).unwrap().login);
        assert_eq!(login(&secrets, "smb://guest@nas/s"), "Login(guest)");
        assert_eq!(login(&secrets, "smb://Anonymous@nas/s"), "Login(anonymous)");
        assert_eq!(login(&secrets, "smb://nas/s"), "Login(\\me)");
        secrets.anonymous = true;
        assert_eq!(login(&secrets, "smb://nas/s"), "Login(anonymous)");
        assert_eq!(login(&secrets, "smb://ann@nas/s"), "Login(\\ann)");
    }

    #[test]
    fn tickets_precede_the_keyring_but_not_given_passwords() {
        let all = |files, variable| {
            let mut secrets = secrets(files, variable, Some("typed"));
            secrets.has_ticket = Box::new(|principal, host| {
                host == "nas" && principal.is_none_or(|principal| principal == "ann")
            });
            secrets.stored_password = Box::new(|server| {
                assert!(server.user.is_some());
                (server.host == "nas").then(|| Password::from("kept"))
            });
            secrets
        };
        let source = |secrets: &Secrets, url: &str| {
            let chosen = secrets.login(&server(url)).unwrap();
            (format!("{:?}", chosen.login), chosen.source)
        };
        let expect = |secrets: &Secrets, url: &str, login: &str, from: Source| {
            assert_eq!(source(secrets, url), (login.to_owned(), from), "{url}");
        };
        let given = all(vec![file(Some("bob"), Some("b"), None)], Some("variable"));
        expect(&given, "smb://ann@nas/s", "Login(\\ann)", Source::Variable);
        expect(&given, "smb://bob@nas/s", "Login(\\bob)", Source::File);
        let mut bare = all(Vec::new(), None);
        expect(&bare, "smb://ann@nas/s", "Login(Kerberos ann)", Source::Ticket);
        expect(&bare, "smb://nas/s", "Login(Kerberos default)", Source::Ticket);
        expect(&bare, "smb://carl@nas/s", "Login(\\carl)", Source::Keyring);
        expect(&bare, "smb://ann@other/s", "Login(\\ann)", Source::Typed);
        bare.auth = Auth::Ntlm;
        expect(&bare, "smb://ann@nas/s", "Login(\\ann)", Source::Keyring);
        // Requested explicitly, Kerberos is the only method; whether there is a ticket shows when
        // it is used.
        bare.auth = Auth::Kerberos;
        expect(&bare, "smb://ann@other/s", "Login(Kerberos ann)", Source::Ticket);
        expect(
            &bare,
            "smb://corp.example;ann@nas/s",
            "Login(Kerberos ann@CORP.EXAMPLE)",
            Source::Ticket,
        );
        expect(
            &bare,
            "smb://ann@EXAMPLE@nas/s",
            "Login(Kerberos ann@EXAMPLE)",
            Source::Ticket,
        );
        expect(
            &bare,
            "smb://WORK;ann@nas/s",
            "Login(Kerberos ann)",
            Source::Ticket,
        );
        expect(&bare, "smb://guest@nas/s", "Login(guest)", Source::Named);
    }
}
