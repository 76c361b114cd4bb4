//! DFS: when a server does not cover a path, the client asks for a referral on IPC$ and continues
//! on the server and share that the referral names ([MS-DFSC] 3.1.5.1, [MS-SMB2] 3.2.4.3).

use parking_lot::Mutex;
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::fsctl::dfs::{DfsReferralRequest, DfsReferralResponse, PATH_UNITS_MAX, Target};
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::{FileId, NtStatus, Text, Writer};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::ops;
use crate::replies::{check, first};
use crate::share::Share;
use crate::tree::{Replay, Tree};

/// Maximum number of referrals followed for one path. A guess: a root, a link, and a link behind
/// it, twice.
pub(crate) const HOPS_MAX: usize = 6;
/// Maximum number of targets tried in all to find one share. A guess: a namespace has a handful.
pub(crate) const TARGETS_MAX: usize = 32;
/// Maximum number of referrals cached for one share. A guess.
const KEPT_MAX: usize = 1024;
/// The share that answers for the whole server.
pub(crate) const IPC: &str = "IPC$";
const SEPARATOR: u16 = b'\\' as u16;

/// Cached referrals of a share: the paths that lead elsewhere.
#[derive(Default)]
pub(crate) struct Redirects(Mutex<Vec<Redirect>>);

#[derive(Clone)]
struct Redirect {
    /// The path prefix in upper case, for comparison.
    prefix: Text,
    share: Share,
    /// The path that replaces the prefix there.
    path: Text,
}

/// Runs an operation on a share and a path, and again wherever DFS refers it to.
macro_rules! routed {
    ($share:expr, $path:expr, |$at:ident, $there:ident| $body:expr) => {{
        let mut route = $crate::dfs::Route::start($share, $path);
        loop {
            let outcome = {
                let ($at, $there) = (&route.share, &route.path);
                $body
            };
            match outcome {
                Err(error) if route.is_elsewhere(&error) => Box::pin(route.follow()).await?,
                outcome => break outcome,
            }
        }
    }};
}
pub(crate) use routed;

/// A path and the share that it has been referred to so far.
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

    /// Asks for a referral for the path, and follows it.
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
        // Components beyond the longest request for a referral cannot affect where it leads.
        asked.truncate(PATH_UNITS_MAX);
        let referral = ask(client, Text::from_units(asked)).await?;
        // `PathConsumed` counts bytes of the requested path.
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

    /// Moves to `\host\share\path`, which replaces the first `consumed` units of the path.
    async fn go(&mut self, address: &Text, consumed: usize) -> Result<()> {
        let text = address.to_string_lossy();
        let mut parts = text.trim_start_matches('\\').splitn(3, '\\');
        let (Some(host), Some(share)) = (parts.next(), parts.next()) else {
            return Err(Error::PeerMisbehaved("a DFS referral without a share".to_owned()));
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
    /// Returns where a path leads whose first `taken` units are the prefix.
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
        let kept = self.0.lock();
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
        let mut kept = self.0.lock();
        kept.retain(|other| other.prefix != redirect.prefix);
        if kept.len() < KEPT_MAX {
            kept.push(redirect);
        }
    }
}

/// Converts to upper case unit by unit, without a change of length.
fn upper(text: &Text) -> Text {
    let units = text.units().iter().map(|unit| match u8::try_from(*unit) {
        Ok(byte) => u16::from(byte.to_ascii_uppercase()),
        Err(_) => *unit,
    });
    Text::from_units(units.collect())
}

/// Returns the hosts and shares that a DFS root refers to, best first; none for a share that is not
/// a root.
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

/// Sends FSCTL_DFS_GET_REFERRALS on the server's IPC$.
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
    let completed = ipc.inner().run(Replay::Safe, 0, build).await?;
    let reply = first(&completed.replies)?;
    check("ask for a DFS referral", reply)?;
    Ok(DfsReferralResponse::decode(
        IoctlResponse::decode(&mut reply.body())?.output,
    )?)
}
