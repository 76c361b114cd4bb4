//! Where DFS leads: a path that its server does not cover is asked for on IPC$, and taken up on the server and share
//! that the answer names ([MS-DFSC] 3.1.5.1, [MS-SMB2] 3.2.4.3).

use std::sync::{Mutex, PoisonError};

use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::dfs::{DfsReferralRequest, DfsReferralResponse, PATH_UNITS_MAX, Target};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::{FileId, NtStatus, Text, Writer};

use crate::tree::{Replay, Tree, check, first};
use crate::{Client, Error, Result, Share, ops};

/// Referrals followed for one path. A guess: a root, a link, and a link behind it, twice.
pub(crate) const HOPS_MAX: usize = 6;
/// Targets tried in all to find one share. A guess: a namespace has a handful.
pub(crate) const TARGETS_MAX: usize = 32;
/// Referrals kept for one share. A guess.
const KEPT_MAX: usize = 1024;
/// The share that answers for all of a server.
pub(crate) const IPC: &str = "IPC$";
const SEPARATOR: u16 = b'\\' as u16;

/// Paths of a share that lead elsewhere.
#[derive(Default)]
pub(crate) struct Redirects(Mutex<Vec<Redirect>>);

#[derive(Clone)]
struct Redirect {
    /// In upper case, as names are compared.
    prefix: Text,
    share: Share,
    /// What stands for the prefix there.
    path: Text,
}

/// Runs something on a share and a path, and again where DFS leads it.
macro_rules! routed {
    ($share:expr, $path:expr, |$at:ident, $there:ident| $body:expr) => {{
        let mut route = $crate::dfs::Route::start($share, $path);
        loop {
            let outcome = {
                let ($at, $there) = (&route.share, &route.path);
                $body
            };
            match outcome {
                Err(error) if route.is_elsewhere(&error) => route.follow().await?,
                outcome => break outcome,
            }
        }
    }};
}
pub(crate) use routed;

/// A path on its way.
pub(crate) struct Route {
    pub(crate) share: Share,
    pub(crate) path: Text,
    hops: usize,
}

impl Route {
    pub(crate) fn start(share: &Share, path: &Text) -> Self {
        let mut route = Self {
            share: share.clone(),
            path: path.clone(),
            hops: 0,
        };
        while let Some((share, path)) = route.share.inner().redirects.find(&route.path) {
            route.share = share;
            route.path = path;
            route.hops += 1;
            if route.hops == HOPS_MAX {
                break;
            }
        }
        route
    }

    pub(crate) fn is_elsewhere(&self, error: &Error) -> bool {
        error.status() == Some(NtStatus::PATH_NOT_COVERED) && self.hops < HOPS_MAX
    }

    /// Asks where the path leads, and goes there.
    pub(crate) async fn follow(&mut self) -> Result<()> {
        self.hops += 1;
        let inner = self.share.inner();
        let client = &inner.client;
        let mut asked = client
            .link()
            .endpoint
            .unc_host()
            .encode_utf16()
            .collect::<Vec<u16>>();
        asked.insert(0, SEPARATOR);
        asked.push(SEPARATOR);
        asked.extend(inner.name.encode_utf16());
        let above = asked.len();
        if !self.path.is_empty() {
            asked.push(SEPARATOR);
            asked.extend_from_slice(self.path.units());
        }
        // What lies deeper than a referral's question can say cannot decide where it leads.
        asked.truncate(PATH_UNITS_MAX);
        let referral = ask(client, Text::from_units(asked)).await?;
        // `PathConsumed` is in bytes of the path asked for.
        let consumed = (usize::from(referral.path_consumed) / 2).saturating_sub(above);
        let mut fault = Error::refused("follow DFS", NtStatus::PATH_NOT_COVERED);
        for target in referral.referrals {
            let Target::Path { network_address, .. } = target.target else {
                continue;
            };
            match self.go(&network_address, consumed).await {
                Ok(()) => return Ok(()),
                Err(error) => fault = error,
            }
        }
        Err(fault)
    }

    /// To `\host\share\path`, for the first `consumed` units of the path.
    async fn go(&mut self, address: &Text, consumed: usize) -> Result<()> {
        let text = address.to_string_lossy();
        let mut parts = text.trim_start_matches('\\').splitn(3, '\\');
        let (Some(host), Some(share)) = (parts.next(), parts.next()) else {
            return Err(Error::PeerMisbehaved("a DFS referral to no share".to_owned()));
        };
        let rest = parts.next().unwrap_or_default().trim_end_matches('\\');
        let client = Box::pin(self.share.client().at(host)).await?;
        let share = client.share(share).await?;
        let units = self.path.units();
        let start = usize::from(units.first() == Some(&SEPARATOR) || consumed > 0);
        // The separator in front of the path counts as consumed.
        let taken = (consumed.saturating_sub(start)).min(units.len());
        let prefix = Text::from_units(units[..taken].to_vec());
        let redirect = Redirect {
            prefix: upper(&prefix),
            share,
            path: Text::from(rest),
        };
        let (share, path) = redirect.apply(units, taken);
        self.share.inner().redirects.keep(redirect);
        self.share = share;
        self.path = path;
        Ok(())
    }
}

impl Redirect {
    /// Where a path leads whose first `taken` units are the prefix.
    fn apply(&self, units: &[u16], taken: usize) -> (Share, Text) {
        let mut path = self.path.units().to_vec();
        let rest = units[taken..]
            .strip_prefix(&[SEPARATOR])
            .unwrap_or(&units[taken..]);
        if !path.is_empty() && !rest.is_empty() {
            path.push(SEPARATOR);
        }
        path.extend_from_slice(rest);
        (self.share.clone(), Text::from_units(path))
    }
}

impl Redirects {
    fn find(&self, path: &Text) -> Option<(Share, Text)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return None;
        }
        let wanted = upper(path);
        let leads = |redirect: &&Redirect| {
            wanted
                .units()
                .strip_prefix(redirect.prefix.units())
                .is_some_and(|rest| rest.is_empty() || rest[0] == SEPARATOR || redirect.prefix.is_empty())
        };
        let best = kept
            .iter()
            .filter(leads)
            .max_by_key(|redirect| redirect.prefix.units().len())?;
        Some(best.apply(path.units(), best.prefix.units().len()))
    }

    fn keep(&self, redirect: Redirect) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|other| other.prefix != redirect.prefix);
        if kept.len() < KEPT_MAX {
            kept.push(redirect);
        }
    }
}

/// Upper case without change of length: unit by unit.
fn upper(text: &Text) -> Text {
    let units = text.units().iter().map(|unit| match u8::try_from(*unit) {
        Ok(byte) => u16::from(byte.to_ascii_uppercase()),
        Err(_) => *unit,
    });
    Text::from_units(units.collect())
}

/// The hosts and shares that stand for a share which is a root of DFS, best first; none for one that is not.
pub(crate) async fn root_targets(client: &Client, name: &str) -> Result<Vec<(String, String)>> {
    let asked = format!("\\{}\\{name}", client.link().endpoint.unc_host());
    let referral = ask(client, Text::from(asked.as_str())).await?;
    let whole_share = |target: Target| {
        let Target::Path { network_address, .. } = target else {
            return None;
        };
        let text = network_address.to_string_lossy();
        let mut parts = text.trim_matches('\\').split('\\');
        let (host, share) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        (!host.is_empty() && parts.next().is_none()).then_some((host, share))
    };
    let targets = referral.referrals.into_iter();
    Ok(targets
        .filter_map(|referral| whole_share(referral.target))
        .collect())
}

/// FSCTL_DFS_GET_REFERRALS on the server's IPC$.
async fn ask(client: &Client, path: Text) -> Result<DfsReferralResponse> {
    let ipc = Box::pin(client.share(IPC)).await?;
    let request = DfsReferralRequest {
        max_referral_level: 4,
        request_file_name: path,
    };
    let mut input = Vec::new();
    request.encode(&mut Writer::new(&mut input));
    let output_max = (64 << 10).min(ipc.limits().transact_max);
    let build = |tree: &Tree| {
        let code = CtlCode::DFS_GET_REFERRALS;
        vec![ops::ioctl(tree.id, FileId::RELATED, code, &input, output_max)]
    };
    let ran = ipc.inner().run(Replay::Safe, 0, build).await?;
    let reply = first(&ran.replies)?;
    check("ask where DFS leads", reply)?;
    Ok(DfsReferralResponse::decode(
        IoctlResponse::decode(&mut reply.body())?.output,
    )?)
}
