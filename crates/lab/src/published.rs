//! Published figures, as data of the program.

use crate::report::Published;

/// Published seconds of TR-3869, with their source.
const TR3869: &str = include_str!("../data/tr3869.csv");
/// Tables whose figures other tables repeat.
const FIRST_TABLES: std::ops::RangeInclusive<u32> = 1..=8;

/// Returns the seconds of TR-3869, with link names such as `32ms-52mbit`. Tables 1 to 8 take precedence
/// over 9 to 12.
pub fn tr3869() -> Vec<Published> {
    let rows: Vec<(u32, Published)> = TR3869.lines().filter_map(row).collect();
    let same = |a: &Published, b: &Published| {
        (&a.link, &a.work, &a.direction, &a.client, &a.server)
            == (&b.link, &b.work, &b.direction, &b.client, &b.server)
    };
    let first = |published: &Published| {
        rows.iter()
            .any(|(table, known)| FIRST_TABLES.contains(table) && same(known, published))
    };
    rows.iter()
        .filter(|(table, published)| FIRST_TABLES.contains(table) || !first(published))
        .map(|(_, published)| published.clone())
        .collect()
}

/// Requests a second of one file of 100 MB that is read at 32 ms: link, client and rate, by the text and the
/// plots of TR-3869.
const REQUESTS: [(&str, &str, f64); 6] = [
    ("32ms-155mbit", "Windows XP, SMB 1", 20.0),
    ("32ms-155mbit", "Windows 7, SMB 1", 470.0),
    ("32ms-155mbit", "Windows 7, SMB 2.0", 310.0),
    ("32ms-622mbit", "Windows XP, SMB 1", 20.0),
    ("32ms-622mbit", "Windows 7, SMB 1", 470.0),
    ("32ms-622mbit", "Windows 7, SMB 2.0", 800.0),
];

/// Returns the published requests a second: the identifier of the curve to which they belong, the name of the
/// client, and the rate.
pub(crate) fn requests() -> impl Iterator<Item = (String, &'static str, f64)> {
    let curve = |link: &str| format!("requests-{link}-file100mb-read");
    REQUESTS
        .into_iter()
        .map(move |(link, client, rate)| (curve(link), client, rate))
}

/// Parses `table,rtt_ms,mbit,link,work,direction,client,server,seconds`; `None` for comments and
/// headings.
fn row(line: &str) -> Option<(u32, Published)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [table, rtt_ms, mbit, _, work, direction, client, server, seconds] = fields.as_slice() else {
        return None;
    };
    let table = table.parse().ok()?;
    let published = Published {
        source: format!("NetApp TR-3869, table {table}"),
        link: format!("{rtt_ms}ms-{mbit}mbit"),
        work: (*work).to_owned(),
        direction: (*direction).to_owned(),
        client: (*client).to_owned(),
        server: (*server).to_owned(),
        seconds: seconds.parse().ok()?,
    };
    Some((table, published))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn each_cell_has_one_figure_and_the_first_tables_win() {
        let all = tr3869();
        // 8 tables of 12; of 9 to 12 only Windows 2008, 4 of 12.
        assert_eq!(all.len(), 8 * 12 + 4 * 12);
        let found: Vec<&Published> = all
            .iter()
            .filter(|row| {
                (row.link.as_str(), row.work.as_str(), row.direction.as_str())
                    == ("75ms-52mbit", "file100mb", "read")
                    && (row.client.as_str(), row.server.as_str()) == ("win7-smb2", "fas3140")
            })
            .collect();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].seconds, found[0].source.as_str()),
            (24.0, "NetApp TR-3869, table 5")
        );
    }

    #[test]
    fn their_links_and_works_are_those_of_the_scenario() {
        let scenario = Scenario::shipped("tr3869").unwrap().unwrap();
        for row in tr3869() {
            assert!(
                scenario.links.iter().any(|link| link.name == row.link),
                "{}",
                row.link
            );
            assert!(
                scenario.works.iter().any(|work| work.name() == row.work),
                "{}",
                row.work
            );
        }
    }
}
