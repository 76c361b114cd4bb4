//! Values of flags: each parser gives the value or one clause that says what is wrong.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::tz::TimeZone;
use ropeway_copy::{Changing, Durability};
use ropeway_lab::link::Congestion;
use ropeway_plan::Engine;
use ropeway_plan::bandwidth::Schedule;
use ropeway_plan::filter;
use ropeway_plan::guard::MaxDelete;
use ropeway_plan::names::NamePolicy;
use ropeway_smb_client::{DfsHosts, Encryption, Signing};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_vfs::decorate::faults::FaultRule;
use ropeway_vfs::decorate::slow::DeviceModel;
use ropeway_vfs::trace::End;
use ropeway_vfs::{CacheMode, Timestamp};

use super::lab::{LinkRate, RelayPorts, SideBySide};
use crate::secrets::{Auth, Ring};

/// The rules of one `--fault`.
#[derive(Clone, Debug)]
pub(crate) struct FaultRules(pub(crate) Vec<FaultRule>);

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Picks the value of a word, or names the words.
fn word<T: Copy>(given: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words
        .iter()
        .find(|(word, _)| *word == given)
        .map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("there are {}", names.join(", "))
    })
}

pub(super) fn durability(given: &str) -> Result<Durability, String> {
    word(
        given,
        &[
            ("none", Durability::None),
            ("end", Durability::End),
            ("file", Durability::File),
        ],
    )
}

pub(super) fn changing(given: &str) -> Result<Changing, String> {
    word(
        given,
        &[
            ("copy", Changing::Copy),
            ("skip", Changing::Skip),
            ("fail", Changing::Fail),
        ],
    )
}

pub(super) fn cache(given: &str) -> Result<CacheMode, String> {
    let words = [
        ("auto", CacheMode::Auto),
        ("keep", CacheMode::Keep),
        ("leave", CacheMode::Leave),
        ("direct", CacheMode::Direct),
    ];
    word(given, &words)
}

pub(super) fn names(given: &str) -> Result<NamePolicy, String> {
    word(
        given,
        &[
            ("auto", NamePolicy::Auto),
            ("refuse", NamePolicy::Refuse),
            ("map", NamePolicy::Map),
        ],
    )
}

pub(super) fn sign(given: &str) -> Result<Signing, String> {
    word(
        given,
        &[("required", Signing::Required), ("offered", Signing::Offered)],
    )
}

pub(super) fn auth(given: &str) -> Result<Auth, String> {
    let words = [
        ("auto", Auth::Auto),
        ("ntlm", Auth::Ntlm),
        ("kerberos", Auth::Kerberos),
        // As mount.cifs calls them.
        ("krb5", Auth::Kerberos),
        ("ntlmssp", Auth::Ntlm),
    ];
    word(given, &words)
}

pub(super) fn keyring(given: &str) -> Result<Ring, String> {
    let words = [
        ("persistent", Ring::Persistent),
        ("user", Ring::User),
        ("session", Ring::Session),
        ("off", Ring::Off),
    ];
    word(given, &words)
}

pub(super) fn encrypt(given: &str) -> Result<Encryption, String> {
    let words = [
        ("off", Encryption::Off),
        ("desired", Encryption::Desired),
        ("required", Encryption::Required),
    ];
    word(given, &words)
}

pub(super) fn dfs(given: &str) -> Result<DfsHosts, String> {
    word(given, &[("domain", DfsHosts::Domain), ("any", DfsHosts::Any)])
}

pub(super) fn dialect(given: &str) -> Result<Dialect, String> {
    let words = [
        ("2.0.2", Dialect::Smb202),
        ("2.1", Dialect::Smb210),
        ("3.0", Dialect::Smb300),
        ("3.0.2", Dialect::Smb302),
        ("3.1.1", Dialect::Smb311),
    ];
    // SMB 2.1 is also spelled 2.1.0, 3.0 also 3.0.0.
    let plain = match given.strip_suffix(".0") {
        Some(rest) if rest.contains('.') => rest,
        _ => given,
    };
    word(plain, &words)
}

/// SMB's own port ([MS-SMB2] 2.1).
const SMB_PORT: u16 = 445;

/// `ADDR:PORT`, or `ADDR` alone for SMB's own port.
pub(super) fn listen(given: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = given.parse() {
        return Ok(address);
    }
    let bare = given.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare.unwrap_or(given).parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, SMB_PORT)),
        Err(_) => Err("an address of this machine with a port, e.g. 127.0.0.1:4450 or [::]:445".to_owned()),
    }
}

/// `ADDR:PORT`, or `PORT` of the loopback.
pub(super) fn http(given: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = given.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    given
        .parse()
        .map_err(|_| "a port, or an address of this machine with a port, e.g. 127.0.0.1:9450".to_owned())
}

/// One dialect, or `MIN..MAX` with either end left out.
pub(super) fn dialects(given: &str) -> Result<RangeInclusive<Dialect>, String> {
    let Some((min, max)) = given.split_once("..") else {
        return dialect(given).map(|only| only..=only);
    };
    let max = max.strip_prefix('=').unwrap_or(max);
    let end = |text: &str, open: Dialect| if text.is_empty() { Ok(open) } else { dialect(text) };
    let (min, max) = (end(min, Dialect::Smb202)?, end(max, Dialect::Smb311)?);
    if min > max {
        return Err("the older dialect comes first".to_owned());
    }
    Ok(min..=max)
}

pub(super) fn end(given: &str) -> Result<End, String> {
    word(given, &[("source", End::Source), ("target", End::Target)])
}

pub(super) fn engine(given: &str) -> Result<Engine, String> {
    given.parse().map_err(text)
}

pub(super) fn max_delete(given: &str) -> Result<MaxDelete, String> {
    given.parse().map_err(text)
}

pub(super) fn size(given: &str) -> Result<u64, String> {
    filter::parse_size(given).map_err(text)
}

/// An age before now or a date in local time.
pub(super) fn age(given: &str) -> Result<Timestamp, String> {
    let now = Timestamp(jiff::Timestamp::now().as_nanosecond());
    filter::parse_age_in(given, now, &TimeZone::system()).map_err(text)
}

pub(super) fn bwlimit(given: &str) -> Result<Schedule, String> {
    Schedule::parse(given).map_err(text)
}

pub(super) fn model(given: &str) -> Result<DeviceModel, String> {
    DeviceModel::parse(given).map_err(text)
}

/// `622mbit`; `none` for a line without a rate.
pub(super) fn link_rate(given: &str) -> Result<LinkRate, String> {
    if given.eq_ignore_ascii_case("none") {
        return Ok(LinkRate(None));
    }
    given.parse().map(|rate| LinkRate(Some(rate)))
}

/// `640mbit`, or `off`.
pub(super) fn side_by_side(given: &str) -> Result<SideBySide, String> {
    if given == "off" {
        return Ok(SideBySide(None));
    }
    given.parse().map(|rate| SideBySide(Some(rate)))
}

pub(super) fn loss(given: &str) -> Result<f64, String> {
    ropeway_lab::link::parse_loss(given)
}

pub(super) fn congestion(given: &str) -> Result<Congestion, String> {
    given.parse()
}

/// `NEAR:FAR`, two ports.
pub(super) fn ports(given: &str) -> Result<RelayPorts, String> {
    let both = given.split_once(':').and_then(|(near, far)| {
        let (near, far): (u16, u16) = (near.parse().ok()?, far.parse().ok()?);
        (near > 0 && far > 0).then_some(RelayPorts { near, far })
    });
    both.ok_or_else(|| format!("{given:?} is not two ports such as 8445:445"))
}

/// Rules separated by `;`; `source:` before a rule is taken for `source.`.
pub(crate) fn fault(given: &str) -> Result<FaultRules, String> {
    let rules: Vec<String> = given
        .split(';')
        .map(|rule| {
            let rule = rule.trim();
            match ["source", "target"]
                .iter()
                .find_map(|end| Some((end, rule.strip_prefix(end)?.strip_prefix(':')?)))
            {
                Some((end, rest)) => format!("{end}.{rest}"),
                None => rule.to_owned(),
            }
        })
        .collect();
    let rules = FaultRule::parse(&rules.join(";")).map_err(text)?;
    if rules.is_empty() {
        return Err("it holds no rule".to_owned());
    }
    Ok(FaultRules(rules))
}

/// `500us`, `10ms`, `30s`, `5m`, `2h`; a bare number counts seconds. More than zero.
pub(super) fn duration(given: &str) -> Result<Duration, String> {
    ropeway_lab::link::parse_time(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("10ms"), Ok(Duration::from_millis(10)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        for bad in ["", "0", "s", "-1s", "1 year", "1e400h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn faults_take_both_spellings_of_the_end() {
        for rule in ["source:read:errno=EIO", "source.read:errno=EIO"] {
            let rules = fault(rule).unwrap().0;
            assert_eq!(rules.len(), 1);
            assert_eq!(rules[0].end, Some(End::Source));
        }
        assert_eq!(
            fault("target:write:nth=2,errno=ENOSPC; any:delay=1ms")
                .unwrap()
                .0
                .len(),
            2
        );
        assert!(fault("").is_err());
        assert!(fault("source:boil:errno=EIO").is_err());
    }

    #[test]
    fn addresses_to_listen_on() {
        let shown = |given| listen(given).map(|address| address.to_string()).ok();
        for (given, expected) in [
            ("127.0.0.1:4450", "127.0.0.1:4450"),
            ("0.0.0.0", "0.0.0.0:445"),
            ("::", "[::]:445"),
            ("[::1]", "[::1]:445"),
            ("[::1]:4450", "[::1]:4450"),
        ] {
            assert_eq!(shown(given).as_deref(), Some(expected), "{given}");
        }
        for bad in ["", "nas:445", "4450", "1.2.3.4:", "1.2.3.4:70000", "[::1", ":445"] {
            assert_eq!(shown(bad), None, "{bad}");
        }
        let shown = |given| http(given).map(|address| address.to_string()).ok();
        assert_eq!(shown("9450").as_deref(), Some("127.0.0.1:9450"));
        assert_eq!(shown(":9450").as_deref(), Some("127.0.0.1:9450"));
        assert_eq!(shown("0.0.0.0:9450").as_deref(), Some("0.0.0.0:9450"));
        assert_eq!(shown("localhost:9450"), None);
    }

    #[test]
    fn dialects_are_one_or_a_range() {
        assert_eq!(dialects("3.1.1"), Ok(Dialect::Smb311..=Dialect::Smb311));
        assert_eq!(dialects("2.1.0..3.0.0"), Ok(Dialect::Smb210..=Dialect::Smb300));
        assert_eq!(dialects("3.0.."), Ok(Dialect::Smb300..=Dialect::Smb311));
        assert_eq!(dialects(".."), Ok(Dialect::Smb202..=Dialect::Smb311));
        for bad in ["", "1.0", "3", "3.1.1..3.0", "3.0...", "2.0.2-3.0"] {
            assert!(dialects(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn unknown_words_name_the_known_ones() {
        assert_eq!(
            cache("warm"),
            Err("there are auto, keep, leave, direct".to_owned())
        );
        assert!(durability("end").is_ok());
    }
}
