//! Users of a private smbd.
//!
//! Samba takes only users that the system knows. So `username map` gives each user a unix account
//! that exists everywhere and has no logins: the first is the account that smbd runs as, the others
//! are `daemon`, `bin`, … The instance's own passdb holds password and state of that account.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::conf::WORKGROUP;
use crate::PeerError;
use crate::procfs::in_user_namespace;
use crate::session::{self, is_root, require};

/// Accounts of services in Debian and most other systems. Their passwords here are the instance's.
const UNIX_ACCOUNTS: [&str; 13] = [
    "root", "daemon", "bin", "sys", "games", "man", "lp", "mail", "news", "uucp", "proxy", "backup", "list",
];

/// State of an account, with the error that a login gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Account {
    /// Logins succeed.
    #[default]
    Good,
    /// STATUS_ACCOUNT_DISABLED.
    Disabled,
    /// STATUS_ACCOUNT_LOCKED_OUT.
    Locked,
    /// STATUS_ACCOUNT_EXPIRED.
    Expired,
    /// STATUS_PASSWORD_MUST_CHANGE.
    PasswordMustChange,
}

/// A user with a password.
#[derive(Clone, Debug)]
pub struct Login {
    /// Name that the client gives.
    pub user: String,
    /// Password.
    pub password: String,
    pub(super) account: Account,
}

impl Login {
    pub(super) fn new(user: &str, password: &str, account: Account) -> Self {
        Self {
            user: user.to_owned(),
            password: password.to_owned(),
            account,
        }
    }
}

/// User id of a process without an id map in a user namespace: the kernel's overflow id
/// (user_namespaces(7)).
const OVERFLOW_ID: &str = "65534";

/// Whether smbd runs as root and may act as other users.
pub(super) fn may_switch_users() -> bool {
    is_root() && !in_user_namespace()
}

/// Returns the unix accounts for that many users.
pub(super) fn unix_accounts(count: usize) -> Result<Vec<String>, PeerError> {
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    if !may_switch_users() {
        if count > 1 {
            return Err(PeerError::needs_root(
                "an ordinary user's smbd can have only one user",
            ));
        }
        let own = match rustix::process::getuid() {
            id if id.is_root() => OVERFLOW_ID.to_owned(),
            id => id.as_raw().to_string(),
        };
        let name = known
            .lines()
            .find(|line| line.split(':').nth(2) == Some(&own))
            .and_then(|line| line.split(':').next())
            .ok_or_else(|| PeerError::needs_root("this user has no name in /etc/passwd"))?;
        return Ok(vec![name.to_owned()]);
    }
    let is_known = |name: &&str| known.lines().any(|line| line.split(':').next() == Some(name));
    let found: Vec<String> = UNIX_ACCOUNTS
        .into_iter()
        .filter(is_known)
        .take(count.max(1))
        .map(str::to_owned)
        .collect();
    if found.len() < count {
        return Err(PeerError::Missing {
            what: format!("the system has too few accounts for {count} users"),
            hint: "use fewer".to_owned(),
        });
    }
    Ok(found)
}

/// Returns the `username map`: each user's unix account. `!` ends the search, since an account may
/// have the name of another user. Names from Kerberos carry the workgroup.
pub(super) fn map(logins: &[Login], unix: &[String]) -> String {
    let mut text = String::new();
    for (login, account) in logins.iter().zip(unix) {
        let _ = writeln!(text, "!{account} = \"{0}\" \"{WORKGROUP}\\{0}\"", login.user);
    }
    text
}

/// Adds the users to the passdb that the configuration names.
pub(super) fn create(configuration: &Path, logins: &[Login], unix: &[String]) -> Result<(), PeerError> {
    for (login, account) in logins.iter().zip(unix) {
        let twice = format!("{0}\n{0}\n", login.password);
        pdbedit(configuration, &["-a", "-t", "-u", account], &twice)?;
        match login.account {
            Account::Good => {}
            Account::Disabled => pdbedit(configuration, &["-r", "-c", "[D]", "-u", account], "")?,
            Account::Locked => pdbedit(configuration, &["-r", "-c", "[L]", "-u", account], "")?,
            Account::Expired => pdbedit(configuration, &["-r", "-K", "1", "-u", account], "")?,
            Account::PasswordMustChange => {
                let arguments = ["sam", "set", "pwdmustchangenow", account, "yes"];
                feed("net", configuration, &arguments, "")?;
            }
        }
    }
    Ok(())
}

/// Changes a user's password; smbd may run.
pub(super) fn set_password(configuration: &Path, account: &str, password: &str) -> Result<(), PeerError> {
    // pdbedit cannot change a password without a terminal, so the user is removed and added.
    pdbedit(configuration, &["-x", "-u", account], "")?;
    pdbedit(
        configuration,
        &["-a", "-t", "-u", account],
        &format!("{password}\n{password}\n"),
    )
}

fn pdbedit(configuration: &Path, arguments: &[&str], input: &str) -> Result<(), PeerError> {
    feed("pdbedit", configuration, arguments, input)
}

/// Runs one of samba's tools. Passwords go to its standard input, not to its arguments.
pub(super) fn feed(
    tool: &str,
    configuration: &Path,
    arguments: &[&str],
    input: &str,
) -> Result<(), PeerError> {
    let mut command = Command::new(require(tool, "samba-common-bin")?);
    command.arg("-s").arg(configuration).args(arguments);
    let output = session::feed(&mut command, input).map_err(|error| PeerError::failed(tool, error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    Err(PeerError::failed(
        format_args!("{tool} {}", arguments.join(" ")),
        String::from_utf8_lossy(&said).trim(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_maps_to_another_unix_account() {
        let logins = [
            Login::new("alice", "a", Account::Good),
            Login::new("zoé smith", "b", Account::Good),
        ];
        let unix = ["root".to_owned(), "daemon".to_owned()];
        assert_eq!(
            map(&logins, &unix),
            "!root = \"alice\" \"ROPEWAY\\alice\"\n!daemon = \"zoé smith\" \"ROPEWAY\\zoé smith\"\n"
        );
    }
}
