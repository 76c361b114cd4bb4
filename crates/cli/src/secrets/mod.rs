//! Who logs in to a server, and the password: never from a command line, never into a log.
//!
//! For `smb://user@host/…` the first of these that there is:
//! 1. a `--credentials` file whose `username` is that user (or any, if the URL names none),
//! 2. `ROPEWAY_PASSWORD`,
//! 3. the terminal, without echo.
//!
//! A URL without a user stands for the first credentials file's user, else for `$USER`. Guests and nobody are asked for
//! by name only: the user `guest` in the URL; the user `anonymous`, or `--anonymous` where the URL names none.

mod file;
mod prompt;

use std::ffi::OsString;
use std::path::PathBuf;

use ropeway_smb::{Login, Password};

use crate::failure::{Failure, code};
use crate::url::{Address, Server};
use file::Credentials;

/// The variable that holds a password.
pub(crate) const VARIABLE: &str = "ROPEWAY_PASSWORD";

/// Asks a person for a password; `None` if nobody is there.
type Ask = Box<dyn Fn(&str) -> Result<Option<Password>, Failure> + Send + Sync>;

/// Where logins come from.
pub(crate) struct Secrets {
    files: Vec<Credentials>,
    password: Option<Password>,
    local_user: Option<String>,
    anonymous: bool,
    ask: Ask,
}

impl Secrets {
    /// Reads the credentials files and looks at the environment.
    ///
    /// # Errors
    /// A file is not private, cannot be read or is none.
    pub(crate) fn load(
        files: &[PathBuf],
        anonymous: bool,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        let files = files.iter().map(|path| file::read(path));
        let password = match environment(VARIABLE).map(OsString::into_string) {
            None => None,
            Some(Ok(text)) => Some(Password::new(text)),
            Some(Err(_)) => {
                return Err(Failure::usage(format!("{VARIABLE} is not UTF-8"))
                    .hint("set it to the password as text, or use --credentials FILE"));
            }
        };
        let name = |variable| environment(variable).and_then(|name| name.into_string().ok());
        Ok(Self {
            files: files.collect::<Result<_, _>>()?,
            password,
            local_user: name("USER")
                .or_else(|| name("LOGNAME"))
                .filter(|name| !name.is_empty()),
            anonymous,
            ask: Box::new(prompt::ask),
        })
    }

    /// The login for a server.
    ///
    /// # Errors
    /// There is no password, or nobody is named.
    pub(crate) fn login(&self, server: &Server) -> Result<Login, Failure> {
        match &server.user {
            Some(user) if user.eq_ignore_ascii_case("guest") => return Ok(Login::Guest),
            Some(user) if user.eq_ignore_ascii_case("anonymous") => return Ok(Login::Anonymous),
            None if self.anonymous => return Ok(Login::Anonymous),
            _ => {}
        }
        let file = self.files.iter().find(|file| file.is_of(server));
        let user = server.user.as_ref().or(file.and_then(|file| file.user.as_ref()));
        let Some(user) = user.or(self.local_user.as_ref()) else {
            return Err(
                Failure::usage(format!("who is to log in to {}?", Address(server))).hint(format!(
                    "name the user: smb://user@{}/…; or --anonymous",
                    Address(server)
                )),
            );
        };
        let domain = server
            .domain
            .as_ref()
            .or(file.and_then(|file| file.domain.as_ref()));
        let password = match file.and_then(|file| file.password.clone()) {
            Some(password) => password,
            None => self.password_of(user, server)?,
        };
        Ok(Login::Password {
            domain: domain.cloned().unwrap_or_default(),
            user: user.clone(),
            password,
        })
    }

    fn password_of(&self, user: &str, server: &Server) -> Result<Password, Failure> {
        if let Some(password) = &self.password {
            return Ok(password.clone());
        }
        let address = Address(server);
        (self.ask)(&format!("Password of {user} at {address}: "))?.ok_or_else(|| {
            Failure::new(
                code::PERMISSION,
                format!("there is no password for {user} at {address}, and no terminal to ask"),
            )
            .hint(format!(
                "set {VARIABLE}, or give --credentials FILE with username= and password= lines"
            ))
        })
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
            password: password.map(Password::from),
            domain: domain.map(str::to_owned),
        }
    }

    fn secrets(files: Vec<Credentials>, variable: Option<&str>, typed: Option<&'static str>) -> Secrets {
        Secrets {
            files,
            password: variable.map(Password::from),
            local_user: Some("me".to_owned()),
            anonymous: false,
            ask: Box::new(move |prompt| {
                assert!(prompt.ends_with(": "), "{prompt}");
                Ok(typed.map(Password::from))
            }),
        }
    }

    /// domain, user, password
    fn password(secrets: &Secrets, url: &str) -> (String, String, String) {
        match secrets.login(&server(url)).unwrap() {
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
    fn a_file_comes_before_the_variable_and_that_before_the_terminal() {
        let files = || {
            vec![
                file(Some("ann"), Some("a"), Some("WORK")),
                file(Some("bob"), None, None),
            ]
        };
        let all = secrets(files(), Some("variable"), Some("typed"));
        expect(&all, "smb://ann@nas/s", ["WORK", "ann", "a"]);
        expect(&all, "smb://ANN@nas/s", ["WORK", "ANN", "a"]);
        // A user of another domain is another user.
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
    fn without_a_password_nothing_is_tried() {
        let failure = secrets(Vec::new(), None, None)
            .login(&server("smb://ann@[fd00::7]/s"))
            .unwrap_err();
        assert_eq!(failure.code, code::PERMISSION);
        assert!(failure.message.contains("ann at [fd00::7]"), "{failure:?}");
        let mut nobody = secrets(Vec::new(), Some("x"), None);
        nobody.local_user = None;
        assert_eq!(
            nobody.login(&server("smb://nas/s")).unwrap_err().code,
            code::USAGE
        );
    }

    #[test]
    fn guests_and_nobody_are_asked_for_by_name() {
        let mut secrets = secrets(Vec::new(), Some("x"), None);
        let login = |secrets: &Secrets, url: &str| format!("{:?}", secrets.login(&server(url)).unwrap());
        assert_eq!(login(&secrets, "smb://guest@nas/s"), "Login(guest)");
        assert_eq!(login(&secrets, "smb://Anonymous@nas/s"), "Login(anonymous)");
        assert_eq!(login(&secrets, "smb://nas/s"), "Login(\\me)");
        secrets.anonymous = true;
        assert_eq!(login(&secrets, "smb://nas/s"), "Login(anonymous)");
        assert_eq!(login(&secrets, "smb://ann@nas/s"), "Login(\\ann)");
    }
}
