//! Logins by ticket: the key of the service, and which principal is which user.

use std::sync::Arc;

use ropeway_smb_gss::{Admits, KerberosFault, KerberosService};
use ropeway_smb_proto::server::{Accounts, Mechanisms};
use ropeway_smb_wire::Text;

use crate::args::{KerberosUsers, ServeLoginArgs};
use crate::failure::{Failure, code};
use crate::secrets::private;

/// What the server offers beside passwords.
///
/// # Errors
/// The keytab is not private, or has no key of the service.
pub(super) fn mechanisms(args: &ServeLoginArgs, accounts: Accounts) -> Result<Option<Mechanisms>, Failure> {
    let Some(keytab) = &args.keytab else {
        let is_meant = args.service_principal.is_some() || args.kerberos_users != KerberosUsers::Listed;
        return match is_meant {
            true => Err(Failure::usage("logins by ticket need a key").hint("give --keytab FILE")),
            false => Ok(None),
        };
    };
    let file = private::file(keytab, "the keytab")?;
    if file.is_none() {
        return Err(
            Failure::new(code::SOURCE, format!("there is no keytab {}", keytab.display()))
                .hint("`ktadd -k FILE cifs/HOST` of kadmin makes one"),
        );
    }
    let principal = match &args.service_principal {
        Some(principal) => principal.clone(),
        None => format!("cifs/{}", rustix::system::uname().nodename().to_string_lossy()),
    };
    let service = KerberosService::open(keytab, &principal).map_err(|fault| {
        let code = match fault {
            KerberosFault::NotBuiltIn => code::USAGE,
            _ => code::PERMISSION,
        };
        Failure::new(code, format!("no logins by ticket: {fault}")).hint(fault.hint())
    })?;
    let realm = service.realm().to_owned();
    Ok(Some(service.mechanisms(admits(
        args.kerberos_users,
        realm,
        accounts,
    ))))
}

/// A user of the service's own realm is the user of that name here, if there is one. Others keep their realm, so that
/// nobody is taken for a user of another realm, or of none.
fn admits(who: KerberosUsers, own: String, accounts: Accounts) -> Admits {
    Arc::new(move |user, realm| {
        let name = Text::from(user);
        if realm == own && accounts(&name, &Text::from(realm)).is_some() {
            return Some(name);
        }
        (who == KerberosUsers::Any).then(|| Text::from(format!("{user}@{realm}").as_str()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_smb_proto::secret::NtHash;

    fn named(who: KerberosUsers, user: &str, realm: &str) -> Option<String> {
        let accounts: Accounts = Arc::new(|name: &Text, _: &Text| {
            (*name == Text::from("ann")).then(|| NtHash::from_bytes([1; 16]))
        });
        let admits = admits(who, "OWN".to_owned(), accounts);
        admits(user, realm).map(|name| name.to_string_lossy())
    }

    #[test]
    fn only_users_of_the_own_realm_are_users_here() {
        for (user, realm, listed, any) in [
            ("ann", "OWN", Some("ann"), Some("ann")),
            ("ann", "OTHER", None, Some("ann@OTHER")),
            ("bob", "OWN", None, Some("bob@OWN")),
            ("ann/admin", "OWN", None, Some("ann/admin@OWN")),
        ] {
            assert_eq!(named(KerberosUsers::Listed, user, realm).as_deref(), listed);
            assert_eq!(named(KerberosUsers::Any, user, realm).as_deref(), any);
        }
    }
}
