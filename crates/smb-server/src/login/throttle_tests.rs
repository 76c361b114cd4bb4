//! Tests of the throttle for guessed passwords.

use super::*;

const ZERO: Duration = Duration::ZERO;
const NOBODY: Guid = Guid([0; 16]);

fn address() -> IpAddr {
    [192, 0, 2, 1].into()
}

/// Returns whether a login may begin, or how long it must wait.
fn ask(delay: &LoginThrottle, client: IpAddr, now: Instant) -> Result<(), Duration> {
    logins_of(&mut delay.lock(), client, now).begin(now)
}

#[test]
fn guessing_gets_slower_and_a_login_forgives() {
    let delay = LoginThrottle::default();
    let mut now = Instant::now();
    let waits: Vec<_> = (0..12)
        .map(|_| {
            let wait = ask(&delay, address(), now).err();
            if let Some(wait) = wait {
                now += wait;
                ask(&delay, address(), now).unwrap();
            }
            delay.end(address(), LoginOutcome::Failed, "", now);
            wait.unwrap_or_default()
        })
        .collect();
    assert_eq!(
        waits[..6],
        [ZERO, ZERO, ZERO, WAIT_MIN, WAIT_MIN * 2, WAIT_MIN * 4]
    );
    assert_eq!(waits[11], WAIT_MAX);
    assert_eq!(ask(&delay, [192, 0, 2, 2].into(), now), Ok(()));
    now += WAIT_MAX;
    assert_eq!(ask(&delay, address(), now), Ok(()));
    delay.end(address(), LoginOutcome::Abandoned, "", now);
    assert_eq!(
        ask(&delay, address(), now),
        Err(WAIT_MAX),
        "hanging up forgives nothing"
    );
    now += WAIT_MAX;
    assert_eq!(ask(&delay, address(), now), Ok(()));
    delay.end(address(), LoginOutcome::Succeeded, "", now);
    assert_eq!(ask(&delay, address(), now), Ok(()));
}

fn failed(delay: &LoginThrottle, lane: Lane) -> u32 {
    logins_of(&mut delay.lock(), lane, Instant::now()).failed
}

fn account(name: &str) -> Lane {
    Lane::Account(name.into())
}

#[test]
fn a_success_forgives_its_own_account_only() {
    let delay = LoginThrottle::default();
    let begin = || delay.begin(address(), NOBODY).unwrap();
    for _ in 0..3 {
        assert!(begin().failed(Some("victim")));
        assert!(begin().succeeded(Some("own")));
    }
    assert_eq!(failed(&delay, address().into()), 3);
    assert_eq!(failed(&delay, account("victim")), 3);
    assert_eq!(failed(&delay, account("own")), 0);
    // A success from elsewhere forgives nothing here; one from here does, regardless of case.
    delay.end(
        account("victim"),
        LoginOutcome::Succeeded,
        "192.0.2.7",
        Instant::now(),
    );
    assert_eq!(failed(&delay, account("victim")), 3);
    assert!(begin().succeeded(Some("VICTIM")));
    assert_eq!(failed(&delay, account("victim")), 0);
    assert_eq!(failed(&delay, address().into()), 0);
}

#[test]
fn known_clients_do_not_wait_for_guesses() {
    let delay = LoginThrottle::default();
    let guid = Guid([7; 16]);
    assert!(delay.begin(address(), guid).unwrap().succeeded(Some("ann")));
    let now = Instant::now();
    for _ in 0..40 {
        delay.end(address(), LoginOutcome::Failed, "ann", now);
        delay.end(account("ann"), LoginOutcome::Failed, "192.0.2.1", now);
    }
    logins_of(&mut delay.lock(), address(), now).waiting = 60;
    assert!(delay.begin(address(), NOBODY).is_none());
    assert!(delay.begin(address(), Guid([8; 16])).is_none());
    let begins = Instant::now();
    assert!(delay.begin(address(), guid).unwrap().succeeded(Some("ann")));
    assert!(begins.elapsed() < WAIT_MIN);
    // Its own failures slow it down and also count for the address and the account.
    assert!(delay.begin(address(), guid).unwrap().failed(Some("ann")));
    assert_eq!(failed(&delay, Lane::Client(address(), guid)), 1);
    assert_eq!(failed(&delay, address().into()), 41);
    assert_eq!(failed(&delay, account("ann")), 41);
    // For another account it is like any other client.
    for _ in 0..40 {
        delay.end(account("bob"), LoginOutcome::Failed, "192.0.2.9", now);
    }
    logins_of(&mut delay.lock(), account("bob"), now).waiting = 60;
    assert!(!delay.begin(address(), guid).unwrap().failed(Some("bob")));
}

#[test]
fn only_so_many_clients_are_known() {
    let delay = LoginThrottle::default();
    let now = Instant::now();
    for number in 0..2 * KNOWN_OF_ADDRESS_MAX as u32 {
        let mut guid = [1; 16];
        guid[..4].copy_from_slice(&number.to_le_bytes());
        let known = |address| KnownClient {
            address,
            guid: Guid(guid),
            account: "ann".into(),
        };
        delay.remember(known(address()), now + Duration::from_secs(u64::from(number)));
        if number == 0 {
            delay.remember(known([192, 0, 2, 2].into()), now);
        }
    }
    let known = delay.known();
    assert_eq!(known.len(), KNOWN_OF_ADDRESS_MAX + 1);
    assert!(
        known.keys().any(|one| one.address != address()),
        "others keep theirs"
    );
}

#[test]
fn guesses_begun_at_once_count_before_they_fail() {
    let delay = LoginThrottle::default();
    let now = Instant::now();
    let begun = (0..100).take_while(|_| ask(&delay, address(), now).is_ok());
    assert_eq!(begun.count(), CONCURRENT_FREE as usize);
    // A success makes room for the next login.
    delay.end(address(), LoginOutcome::Succeeded, "", now);
    assert_eq!(ask(&delay, address(), now), Ok(()));
    assert_eq!(ask(&delay, address(), now), Err(WAIT_MIN));
    for _ in 0..CONCURRENT_FREE {
        delay.end(address(), LoginOutcome::Failed, "", now);
    }
    assert_eq!(ask(&delay, address(), now), Err(WAIT_MAX));
}

#[test]
fn logins_that_would_wait_too_long_are_refused() {
    let delay = LoginThrottle::default();
    let now = Instant::now();
    for _ in 0..20 {
        delay.end(address(), LoginOutcome::Failed, "", now);
    }
    logins_of(&mut delay.lock(), address(), now).waiting = 3;
    assert!(delay.begin(address(), NOBODY).is_none());
    assert!(delay.begin([192, 0, 2, 2].into(), NOBODY).is_some());
}

#[test]
fn many_successful_logins_do_not_wait() {
    let delay = LoginThrottle::default();
    std::thread::scope(|scope| {
        for _ in 0..10 * CONCURRENT_FREE {
            scope.spawn(|| delay.begin(address(), NOBODY).unwrap().succeeded(None));
        }
    });
    assert!(delay.lock().is_empty(), "nothing is remembered");
}

#[test]
fn an_address_of_ipv6_is_its_network() {
    let of = |text: &str| client_of(text.parse().unwrap());
    assert_eq!(of("2001:db8:0:7::1"), of("2001:db8:0:7:8000::9"));
    assert_ne!(of("2001:db8:0:7::1"), of("2001:db8:0:6::1"));
    assert_eq!(of("::ffff:192.0.2.1"), address());
    assert_ne!(of("::ffff:192.0.2.2"), address());
}

#[test]
fn only_so_many_addresses_are_remembered() {
    let delay = LoginThrottle::default();
    for number in 0..LANES_MAX as u32 + 10 {
        let client: IpAddr = std::net::Ipv4Addr::from(number).into();
        delay.end(client, LoginOutcome::Failed, "", Instant::now());
    }
    assert!(delay.lock().len() <= LANES_MAX);
}
