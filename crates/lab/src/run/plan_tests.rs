use super::super::pack::Packer;
use super::*;
use crate::scenario::Server;

fn tr3869() -> (Scenario, Vec<Plan>) {
    let scenario = Scenario::shipped("tr3869").unwrap().unwrap();
    let plans = scenario
        .works
        .iter()
        .map(|work| work.plan(scenario.seed, scenario.scale_of(*work)))
        .collect();
    (scenario, plans)
}

fn run(seconds: f64) -> Run {
    Run::of(String::new(), Outcome::Done, seconds)
}

const PAIR: Pair = Pair {
    client: Client::Ropeway,
    server: Server::Smbd,
};

#[test]
fn all_of_tr3869_is_planned_once_and_fits_its_budget() {
    let (scenario, plans) = tr3869();
    let groups = groups(&scenario, &plans);
    assert_eq!(groups.len(), 32);
    assert_eq!(keys(&scenario).len(), 32 * 6);
    let (mut found, mut wanted) = (Vec::new(), keys(&scenario));
    for group in &groups {
        found.extend(scenario.pairs.iter().map(|pair| group.key(&scenario, *pair)));
    }
    found.sort();
    wanted.sort();
    assert_eq!(found, wanted);
    let units = groups
        .iter()
        .enumerate()
        .map(|(id, group)| group.unit(id))
        .collect();
    let packer = Packer::new(units, scenario.side_by_side.map(|rate| rate.0), 12 << 30);
    // `cp` has no mount here.
    let pairs: Vec<Pair> = scenario
        .pairs
        .iter()
        .copied()
        .filter(|pair| pair.client != Client::Cp)
        .collect();
    let pace = Pace::of(&scenario);
    let whole = packer.duration(|id| {
        let group = &groups[id];
        group.cost(&pairs, &pace, false, |pair| {
            group.expected(&scenario.links[group.link].spec, pair)
        })
    });
    assert!(whole < Duration::from_secs(3 * 3600 - 600), "{whole:?}");
    assert!(whole > Duration::from_secs(1800), "{whole:?}");
}

#[test]
fn line_times_are_those_of_the_published_links() {
    let (scenario, plans) = tr3869();
    let line = |link: &str, bytes: u64| {
        let found = groups(&scenario, &plans)
            .into_iter()
            .find(|group| scenario.links[group.link].name == link && group.bytes == bytes);
        found.unwrap().line.unwrap().as_secs_f64()
    };
    assert!((line("32ms-52mbit", 100_000_000) - 100e6 * 1538.0 / 1448.0 * 8.0 / 52e6).abs() < 0.001);
    assert!((line("75ms-1000mbit", 1_000_000_000) - 8.497).abs() < 0.001);
}

#[test]
fn long_cells_run_once_and_failed_ones_no_more() {
    let (scenario, plans) = tr3869();
    let groups = groups(&scenario, &plans);
    let pace = Pace::of(&scenario);
    let slow = groups
        .iter()
        .find(|group| group.line.unwrap() > pace.once_above)
        .unwrap();
    assert_eq!(
        (slow.missing(&pace, &[]), slow.missing(&pace, &[run(170.0)])),
        (1, 0)
    );
    let fast = groups
        .iter()
        .find(|group| group.line.unwrap() < Duration::from_secs(2))
        .unwrap();
    assert_eq!(fast.missing(&pace, &[]), 4);
    assert_eq!(fast.missing(&pace, &[run(2.0)]), 3);
    assert_eq!(fast.missing(&pace, &[run(61.0)]), 0, "its first run was long");
    assert_eq!(
        fast.missing(&pace, &[run(2.0), run(61.0)]),
        2,
        "only the first one counts for that"
    );
    let mut failed = run(1.0);
    failed.outcome = Outcome::Failed("why".to_owned());
    assert_eq!(fast.missing(&pace, &[failed]), 0);
}

#[test]
fn the_first_of_several_is_discarded() {
    let mut runs = vec![run(1.0)];
    mark_discarded(&mut runs);
    assert!(!runs[0].discarded);
    runs.push(run(1.0));
    runs.push(run(1.0));
    mark_discarded(&mut runs);
    assert_eq!(
        runs.iter().map(|run| run.discarded).collect::<Vec<_>>(),
        [true, false, false]
    );
}

#[test]
fn a_failed_run_replaces_nothing() {
    let mut failed = run(1.0);
    failed.outcome = Outcome::Failed("why".to_owned());
    let mut runs = vec![run(1.0), failed];
    mark_discarded(&mut runs);
    assert!(!runs[0].discarded, "the only figure");
}

#[test]
fn limits_follow_the_line_or_the_window() {
    let (scenario, plans) = tr3869();
    let groups = groups(&scenario, &plans);
    let shortest = groups.iter().map(Group::limit).min().unwrap();
    assert!(shortest > Duration::from_secs(120) && shortest < Duration::from_secs(140));
    let small = Scenario::shipped("tr3869-small-window").unwrap().unwrap();
    let plan = vec![Work::File100mb.plan(1, 1.0)];
    let longest = super::groups(&small, &plan)
        .iter()
        .map(|group| group.single)
        .max()
        .unwrap();
    // 100 MB in windows of 17,520 bytes, one each 75 ms.
    assert!((longest.as_secs_f64() - 428.08).abs() < 0.1, "{longest:?}");
    assert!((windowed(&small.links[2].spec, 100_000_000, 16).as_secs_f64() - 26.76).abs() < 0.1);
}

#[test]
fn each_round_begins_with_another_item() {
    let (scenario, _) = tr3869();
    for round in 0..10 {
        let turned = turn(&scenario.pairs, round);
        assert_eq!(turned[0], scenario.pairs[round % scenario.pairs.len()]);
        assert_eq!(turned.len(), scenario.pairs.len());
    }
    assert!(turn::<Pair>(&[], 3).is_empty());
}

#[test]
fn repeats_give_way_to_what_has_not_begun() {
    let second = Duration::from_secs(1);
    assert!(affordable(second * 10, second * 5, second * 85, second * 100));
    assert!(!affordable(second * 10, second * 6, second * 85, second * 100));
    assert!(!affordable(second, Duration::MAX, Duration::MAX, second * 100));
}

#[test]
fn estimates_learn() {
    let mut calibration = Calibration::default();
    let ten = Duration::from_secs(10);
    assert_eq!(calibration.applied(PAIR, ten), ten);
    calibration.learn(PAIR, ten, ten * 2);
    assert_eq!(calibration.applied(PAIR, ten), ten * 2);
}

#[test]
fn targets_are_ropeways_alone() {
    let mut link = LinkSpec::new(Duration::from_millis(75), None);
    // The round trip counts, whichever way takes more of it.
    link.up_delay = Some(Duration::from_millis(70));
    let found = target(Work::File100mb, Client::Ropeway, 2.0, &link).unwrap();
    assert!((found - 2.25).abs() < 1e-9);
    assert_eq!(target(Work::Dirset1gb, Client::Rsync, 2.0, &link), None);
    assert_eq!(target(Work::Small3000, Client::Ropeway, 2.0, &link), None);
    link.cuts = vec![Cut {
        at: Duration::from_secs(1),
        length: Duration::from_secs(1),
    }];
    assert_eq!(target(Work::File100mb, Client::Ropeway, 2.0, &link), None);
}

#[test]
fn cuts_make_runs_longer_and_their_limits_too() {
    let (mut scenario, plans) = tr3869();
    let plain = groups(&scenario, &plans).remove(0);
    let second = Duration::from_secs(1);
    let link = &mut scenario.links[plain.link].spec;
    let expected = plain.expected(link, PAIR);
    assert!(expected > second * 10);
    link.cuts = [(second, second * 5), (second * 3600, second)]
        .map(|(at, length)| Cut { at, length })
        .to_vec();
    let cut = groups(&scenario, &plans).remove(0);
    let link = &mut scenario.links[cut.link].spec;
    // The second one comes when all is done.
    assert_eq!(cut.expected(link, PAIR), expected + second * 5);
    assert_eq!(cut.limit(), plain.limit() + second * 12);
    link.cuts[1].length = Cut::FOR_EVER;
    link.cuts[1].at = second * 7;
    let never = groups(&scenario, &plans).remove(0);
    let link = &scenario.links[never.link].spec;
    assert_eq!(never.limit(), plain.limit() + second * 10);
    assert_eq!(never.expected(link, PAIR), never.limit());
}

#[test]
fn a_mount_is_measured_where_it_differs() {
    let scenario = Scenario::shipped("mount").unwrap().unwrap();
    let clients = |work: Work, direction: Direction| -> Vec<Client> {
        let pairs = scenario.pairs_of(0, work, direction);
        pairs.map(|pair| pair.client).collect()
    };
    use Client::{Mount, MountBoost, MountLater, RcloneMount};
    assert_eq!(
        clients(Work::File1gib, Direction::Write),
        [Mount, MountLater, MountBoost, RcloneMount]
    );
    assert_eq!(clients(Work::List10k, Direction::Read), [Mount, RcloneMount]);
    assert_eq!(clients(Work::Dirset1gb, Direction::Read).len(), 6);
    // Two works in both directions, one set that is only read, and a listing.
    assert_eq!(scenario.cells(), 2 * (6 + 4) + 6 + 2);
    assert_eq!(keys(&scenario).len(), scenario.cells());
}

#[test]
fn targets_of_mounts_follow_the_line() {
    let scenario = Scenario::shipped("mount").unwrap().unwrap();
    let spec = &scenario.links[0].spec;
    let line = Some(Duration::from_secs(9));
    let of = |work, client| mount_target(work, client, line, spec);
    assert_eq!(of(Work::File1gib, Client::Mount), Some(10.0));
    assert_eq!(of(Work::Dirset1gb, Client::MountLater), Some(27.0));
    assert_eq!(of(Work::List10k, Client::Mount), Some(3.0));
    assert_eq!(of(Work::Files64mib, Client::MountBoost), None);
    assert_eq!(of(Work::File1gib, Client::MountBoostAgain), None);
    assert_eq!(of(Work::File1gib, Client::RcloneMount), None);
}
