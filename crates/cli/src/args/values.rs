//! Parsers for the values of flags. Each returns the value, or one clause that says what is wrong.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, PathBuf};
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use jiff::tz::TimeZone;
use ropeway_copy::{Changing, DeltaMode, Durability};
use ropeway_lab::bench::grid;
use ropeway_lab::link::Congestion;
use ropeway_lab::scenario::Server;
use ropeway_observe::Mechanism;
use ropeway_plan::Engine;
use ropeway_plan::bandwidth::Schedule;
use ropeway_plan::filter;
use ropeway_plan::guard::MaxDelete;
use ropeway_plan::names::NamePolicy;
use ropeway_smb_client::{CompressionOffer, Congestion as SocketCongestion, DfsHosts, Encryption, Signing};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_vfs::decorate::faults::FaultRule;
use ropeway_vfs::decorate::slow::DeviceModel;
use ropeway_vfs::trace::KINDS;
use ropeway_vfs::{CacheMode, End, HashAlgorithm, RelPath, Timestamp};

use super::bench::SizeList;
use super::lab::{LinkRate, RelayPorts, SideBySide};
use crate::secrets::{Auth, Keyring};

/// Maximum length of a server's name in bytes, that of a DNS label (RFC 1035, 2.3.4).
const SERVER_NAME_BYTES_MAX: usize = 63;
/// Record sizes of `lab nas`: from a page to the maximum that servers grant
/// ([MS-SMB2] 3.3.5.4).
const RECORD_SIZES: RangeInclusive<u64> = 4096..=8 << 20;
/// File sizes of `lab nas`.
const LAB_FILE_SIZES: RangeInclusive<u64> = 4096..=1 << 40;
/// Scales of `lab vista`: below this range no work is left, above it no disk is large enough.
const SCALES: RangeInclusive<f64> = 1e-5..=4.0;

/// The rules of one `--fault` flag.
#[derive(Clone, Debug)]
pub(crate) struct FaultRules(pub(crate) Vec<FaultRule>);

fn text(error: impl Display) -> String {
    error.to_string()
}

/// Looks up a word, or returns an error that lists the words.
fn word<T: Copy>(given: &str, words: &[(&str, T)]) -> Result<T, String> {
    let found = words
        .iter()
        .find(|(word, _)| *word == given)
        .map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("choose one of {}", names.join(", "))
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

pub(super) fn delta(given: &str) -> Result<DeltaMode, String> {
    word(
        given,
        &[
            ("auto", DeltaMode::Auto),
            ("on", DeltaMode::On),
            ("off", DeltaMode::Off),
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
        // The names that mount.cifs uses.
        ("krb5", Auth::Kerberos),
        ("ntlmssp", Auth::Ntlm),
    ];
    word(given, &words)
}

pub(super) fn keyring(given: &str) -> Result<Keyring, String> {
    let words = [
        ("persistent", Keyring::Persistent),
        ("user", Keyring::User),
        ("session", Keyring::Session),
        ("off", Keyring::Off),
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

/// Parses `auto`, `on` or `off`, or what a switch has for the last two.
pub(super) fn compress(given: &str) -> Result<CompressionOffer, String> {
    let words = [
        ("auto", CompressionOffer::OwnEnds),
        ("on", CompressionOffer::On),
        ("off", CompressionOffer::Off),
    ];
    let of_a_switch = clap::builder::BoolishValueParser::new().parse_ref(
        &clap::Command::new("ropeway"),
        None,
        std::ffi::OsStr::new(given),
    );
    match of_a_switch {
        Ok(true) => Ok(CompressionOffer::On),
        Ok(false) => Ok(CompressionOffer::Off),
        Err(_) => word(given, &words),
    }
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

/// SMB's registered port ([MS-SMB2] 2.1).
const SMB_PORT: u16 = 445;

/// Parses `ADDR:PORT`, or `ADDR` alone for SMB's registered port.
pub(super) fn listen(given: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = given.parse() {
        return Ok(address);
    }
    let bare = given.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bare.unwrap_or(given).parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, SMB_PORT)),
        Err(_) => {
            Err("give an address of this machine with a port, e.g. 127.0.0.1:4450 or [::]:445".to_owned())
        }
    }
}

/// Parses `ADDR:PORT`, or `PORT` alone for 127.0.0.1.
pub(super) fn http(given: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = given.trim_start_matches(':').parse::<u16>() {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    }
    given
        .parse()
        .map_err(|_| "give a port, or an address of this machine with a port, e.g. 127.0.0.1:9450".to_owned())
}

/// Parses one dialect, or `MIN..MAX` with either end left out.
pub(super) fn dialects(given: &str) -> Result<RangeInclusive<Dialect>, String> {
    let Some((min, max)) = given.split_once("..") else {
        return dialect(given).map(|only| only..=only);
    };
    let max = max.strip_prefix('=').unwrap_or(max);
    let end = |text: &str, open: Dialect| if text.is_empty() { Ok(open) } else { dialect(text) };
    let (min, max) = (end(min, Dialect::Smb202)?, end(max, Dialect::Smb311)?);
    if min > max {
        return Err("put the older dialect first".to_owned());
    }
    Ok(min..=max)
}

pub(super) fn end(given: &str) -> Result<End, String> {
    word(given, &[("source", End::Source), ("target", End::Target)])
}

/// Parses a kind of operation in a trace.
pub(super) fn kind(given: &str) -> Result<String, String> {
    word(given, &KINDS.map(|kind| (kind, kind))).map(str::to_owned)
}

pub(super) fn mechanism(given: &str) -> Result<Mechanism, String> {
    let known = [Mechanism::Bpf, Mechanism::Tracefs, Mechanism::Ptrace];
    word(given, &known.map(|mechanism| (mechanism.name(), mechanism)))
}

pub(super) fn hash(given: &str) -> Result<HashAlgorithm, String> {
    given.parse()
}

pub(super) fn engine(given: &str) -> Result<Engine, String> {
    given.parse().map_err(text)
}

/// An engine for ends of any kind.
pub(super) fn local_engine(given: &str) -> Result<Engine, String> {
    let engine = engine(given)?;
    match engine.protocol() {
        None => Ok(engine),
        Some(_) => Err(format!(
            "{engine} is for shares; there are auto, xp, vista and vista-sp1"
        )),
    }
}

pub(super) fn max_delete(given: &str) -> Result<MaxDelete, String> {
    given.parse().map_err(text)
}

pub(super) fn size(given: &str) -> Result<u64, String> {
    filter::parse_size(given).map_err(text)
}

/// Parses the size of a write-back journal: some parts of 16 MiB.
pub(super) fn journal_size(given: &str) -> Result<u64, String> {
    let size = size(given)?;
    let is_enough = size >= 64 << 20;
    is_enough
        .then_some(size)
        .ok_or_else(|| "a journal takes 64M at least".to_owned())
}

/// Parses a size of a socket buffer.
pub(super) fn window(given: &str) -> Result<u32, String> {
    let window = size(given)?;
    u32::try_from(window).map_err(|_| "the size must be below 4 GiB".to_owned())
}

/// Parses a suffix for backups.
pub(super) fn suffix(given: &str) -> Result<String, String> {
    match given.is_empty() || given.contains('/') {
        true => Err("a suffix must not be empty or contain a slash, e.g. .old".to_owned()),
        false => Ok(given.to_owned()),
    }
}

/// Returns the parser for a folder below DST.
pub(super) fn folder_in_target() -> impl TypedValueParser<Value = RelPath> {
    PathBufValueParser::new().try_map(|folder| {
        // `Path` removes `./`, doubled slashes and a slash at the end.
        let plain: PathBuf = folder
            .components()
            .filter(|part| !matches!(part, Component::CurDir))
            .collect();
        RelPath::parse(plain.as_os_str().as_bytes())
            .filter(|path| !path.is_root())
            .ok_or("give a path relative to DST without `..`, e.g. .old")
    })
}

/// Parses a server's name: an RFC 1123 name, or one with the underscore that Windows allows.
pub(super) fn server_name(given: &str) -> Result<String, String> {
    let is_valid = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
    if given.is_empty() || given.len() > SERVER_NAME_BYTES_MAX {
        return Err("a server's name has between 1 and 63 bytes".to_owned());
    }
    if !given.chars().all(is_valid) || given.starts_with(['-', '.']) {
        return Err("a server's name has letters, digits, -, _ and . only, e.g. nas".to_owned());
    }
    Ok(given.to_owned())
}

/// Parses a user's name.
pub(super) fn user_name(given: &str) -> Result<String, String> {
    crate::commands::serve::check_user_name(given)
        .map(|()| given.to_owned())
        .map_err(|why| format!("{why}; choose another name"))
}

/// Parses the size of a record of `lab nas`.
pub(super) fn record_size(given: &str) -> Result<u64, String> {
    bounded(size(given)?, RECORD_SIZES, "a record must have 4K to 8M")
}

/// Parses the size of a file of `lab nas`.
pub(super) fn lab_file_size(given: &str) -> Result<u64, String> {
    bounded(size(given)?, LAB_FILE_SIZES, "a file must have 4K to 1T")
}

/// File sizes of `bench`.
const BENCH_FILES: RangeInclusive<u64> = 4096..=1 << 40;
/// Record sizes of `bench`: from a sector to what fits the memory of small machines.
const BENCH_RECORDS: RangeInclusive<u64> = 512..=256 << 20;

/// Parses the file sizes of `bench`.
pub(super) fn bench_file_sizes(given: &str) -> Result<SizeList, String> {
    let size = |text: &str| bounded(size(text)?, BENCH_FILES, "a file must have 4K to 1T");
    grid::sizes(given, &size).map(SizeList)
}

/// Parses the record sizes of `bench`.
pub(super) fn bench_record_sizes(given: &str) -> Result<SizeList, String> {
    let size = |text: &str| {
        let size = bounded(size(text)?, BENCH_RECORDS, "a record must have 512 to 256M")?;
        match size.is_multiple_of(512) {
            true => Ok(size),
            false => Err("a record must be a multiple of 512".to_owned()),
        }
    };
    grid::sizes(given, &size).map(SizeList)
}

/// Parses the scale of `lab vista`.
pub(super) fn scale(given: &str) -> Result<f64, String> {
    const RULE: &str = "give a fraction such as 0.05, at most 4";
    bounded(given.parse().map_err(|_| RULE)?, SCALES, RULE)
}

/// Parses the name of an SMB server for a lab.
pub(super) fn smb_server(given: &str) -> Result<Server, String> {
    match given.parse()? {
        Server::Rsyncd => Err("rsyncd does not speak SMB; choose ropeway or smbd".to_owned()),
        server => Ok(server),
    }
}

fn bounded<T: PartialOrd>(value: T, range: RangeInclusive<T>, rule: &str) -> Result<T, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(rule.to_owned()),
    }
}

/// Parses an age before now, or a date in local time.
pub(super) fn age(given: &str) -> Result<Timestamp, String> {
    let now = Timestamp(jiff::Timestamp::now().as_nanosecond());
    filter::parse_age_in(given, now, &TimeZone::system()).map_err(text)
}

/// Checks a rate or a timetable, and returns its text.
pub(super) fn bwlimit_text(given: &str) -> Result<String, String> {
    bwlimit(given).map(|_| given.to_owned())
}

/// Checks a list of NATS servers: `nats://host:port` or `tls://host:port`. `submit` refuses a login in it, without showing it.
pub(super) fn nats_servers(given: &str) -> Result<String, String> {
    for server in given.split(',') {
        let rest = server
            .strip_prefix("nats://")
            .or_else(|| server.strip_prefix("tls://"));
        if rest.is_none_or(str::is_empty) {
            return Err("not nats://HOST[:PORT] or tls://HOST[:PORT]".to_owned());
        }
    }
    Ok(given.to_owned())
}

/// Parses a rate or a timetable.
pub(crate) fn bwlimit(given: &str) -> Result<Schedule, String> {
    Schedule::parse(given).map_err(text)
}

pub(super) fn model(given: &str) -> Result<DeviceModel, String> {
    DeviceModel::parse(given).map_err(text)
}

/// Parses `622mbit`, or `none` for a link without a limit.
pub(super) fn link_rate(given: &str) -> Result<LinkRate, String> {
    if given.eq_ignore_ascii_case("none") {
        return Ok(LinkRate(None));
    }
    given.parse().map(|rate| LinkRate(Some(rate)))
}

/// Parses `640mbit`, or `off`.
pub(super) fn side_by_side(given: &str) -> Result<SideBySide, String> {
    if given == "off" {
        return Ok(SideBySide(None));
    }
    given.parse().map(|rate| SideBySide(Some(rate)))
}

pub(super) fn loss(given: &str) -> Result<f64, String> {
    ropeway_lab::link::parse_loss(given)
}

pub(super) fn socket_congestion(given: &str) -> Result<SocketCongestion, String> {
    given.parse()
}

pub(super) fn congestion(given: &str) -> Result<Congestion, String> {
    given.parse()
}

/// Parses `NEAR:FAR`, two ports.
pub(super) fn ports(given: &str) -> Result<RelayPorts, String> {
    let both = given.split_once(':').and_then(|(near, far)| {
        let (near, far): (u16, u16) = (near.parse().ok()?, far.parse().ok()?);
        (near > 0 && far > 0).then_some(RelayPorts { near, far })
    });
    both.ok_or_else(|| format!("{given:?} is not a pair of ports such as 8445:445"))
}

/// Parses rules separated by `;`. `source:` before a rule is read as `source.`.
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
        return Err("the text has no rule".to_owned());
    }
    Ok(FaultRules(rules))
}

/// Parses `500us`, `10ms`, `30s`, `5m` or `2h`; a bare number is seconds. Zero is refused.
pub(super) fn duration(given: &str) -> Result<Duration, String> {
    ropeway_lab::link::parse_time(given)
}

/// Parses a goal for the time of an operation.
pub(super) fn latency(given: &str) -> Result<Duration, String> {
    let goal = duration(given)?;
    match (Duration::from_millis(1)..=Duration::from_secs(60)).contains(&goal) {
        true => Ok(goal),
        false => Err("it takes 1ms to 1m".to_owned()),
    }
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
    fn fault_rules_accept_both_spellings_of_the_end() {
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
    fn listen_addresses_have_default_ports() {
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
    fn server_names_are_valid_or_refused() {
        for good in ["nas", "nas-2.example", "büro", "A_1"] {
            assert!(server_name(good).is_ok(), "{good}");
        }
        for bad in ["", "a b", "-a", "a/b", "a\n", &"x".repeat(64)] {
            assert!(server_name(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(record_size("64K"), Ok(65_536));
        assert!(record_size("1K").is_err() && record_size("16M").is_err());
        assert!(lab_file_size("1G").is_ok() && lab_file_size("2T").is_err());
        assert_eq!(scale("0.05"), Ok(0.05));
        for bad in ["0", "5", "NaN", "-1", "x"] {
            assert!(scale(bad).is_err(), "{bad}");
        }
        assert!(window("1M").is_ok() && window("4G").is_err());
        assert!(smb_server("smbd").is_ok() && smb_server("rsyncd").is_err());
    }

    #[test]
    fn errors_for_unknown_words_list_the_known_ones() {
        assert_eq!(
            cache("warm"),
            Err("choose one of auto, keep, leave, direct".to_owned())
        );
        assert!(durability("end").is_ok());
        let error = kind("wirte").unwrap_err();
        assert!(error.contains("write, ") && error.contains("reflink"), "{error}");
        assert_eq!(kind("read").as_deref(), Ok("read"));
    }
}
