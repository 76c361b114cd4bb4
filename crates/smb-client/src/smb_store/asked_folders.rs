//! Which folders to list because names in them are asked for one by one. Pure.
//!
//! A program that looks at many names of a folder, or makes many files in it, pays a round trip for
//! each. The listing answers for all, as long as the server grants a lease on the folder.

use std::collections::HashMap;
use std::time::Duration;

use ropeway_vfs::RelPath;

/// Questions about a folder's names, and the time within which they come, for a listing. Guesses.
const ASKED_MIN: u32 = 3;
const ASKED_WITHIN: Duration = Duration::from_secs(5);
/// Shortest time between two such listings of one folder. A guess: a folder whose lease is lost all
/// the time costs one in that time.
const PAUSE: Duration = Duration::from_secs(5);
/// Folders remembered. A guess: more than a program works in at a time.
const FOLDERS_MAX: usize = 256;

/// The folders whose names were asked for.
#[derive(Debug, Default)]
pub(super) struct AskedFolders(HashMap<RelPath, Asked>);

#[derive(Debug)]
struct Asked {
    since: Duration,
    count: u32,
    /// When the folder was listed for it.
    listed: Option<Duration>,
}

impl AskedFolders {
    /// Notes a question about a name. Returns whether to list the folder.
    pub(super) fn on_ask(&mut self, dir: &RelPath, now: Duration) -> bool {
        if self.0.len() >= FOLDERS_MAX && !self.0.contains_key(dir) {
            self.0
                .retain(|_, asked| asked.listed.unwrap_or(asked.since) + PAUSE > now);
            if self.0.len() >= FOLDERS_MAX {
                return false;
            }
        }
        let asked = self.0.entry(dir.clone()).or_insert(Asked {
            since: now,
            count: 0,
            listed: None,
        });
        if now > asked.since + ASKED_WITHIN {
            (asked.since, asked.count) = (now, 0);
        }
        asked.count += 1;
        let may_list = asked.listed.is_none_or(|listed| listed + PAUSE <= now);
        let lists = may_list && asked.count >= ASKED_MIN;
        if lists {
            *asked = Asked {
                since: now,
                count: 0,
                listed: Some(now),
            };
        }
        lists
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_third_question_in_a_short_time_lists_and_then_none_for_a_while() {
        let mut asked = AskedFolders::default();
        let mut ask = |dir, seconds| asked.on_ask(&path(dir), at(seconds));
        assert_eq!(
            [ask("d", 0), ask("d", 1), ask("e", 1), ask("d", 2)],
            [false, false, false, true]
        );
        for seconds in 3..7 {
            assert!(!ask("d", seconds), "{seconds}");
        }
        assert!(ask("d", 7), "the pause is over");
        for seconds in [100, 106, 112, 118] {
            assert!(!ask("e", seconds), "too slow");
        }
    }

    #[test]
    fn the_folders_remembered_are_bounded() {
        let mut asked = AskedFolders::default();
        for number in 0..10 * FOLDERS_MAX {
            asked.on_ask(&path(&format!("d{number}")), at(number as u64 / 100));
        }
        assert!(asked.0.len() <= FOLDERS_MAX);
        let mut lists = false;
        for _ in 0..ASKED_MIN {
            lists = asked.on_ask(&path("new"), at(1000));
        }
        assert!(lists, "old ones give way");
    }
}
