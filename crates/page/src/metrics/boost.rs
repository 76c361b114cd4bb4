//! The figures of a cache and of write-back journals.

use ropeway_live::model::{Backlog, CacheStatus};

use super::families::{Families, labels};

/// Adds the figures to a page.
pub(super) fn add(page: &mut Families, status: &CacheStatus) {
    for (name, help, value) in counters(status) {
        page.add(
            &format!("ropeway_boost_{name}"),
            "counter",
            help,
            "",
            value as f64,
        );
    }
    for (name, help, value) in gauges(status) {
        page.add(&format!("ropeway_boost_{name}"), "gauge", help, "", value);
    }
}

/// Returns name, help and value of each counter.
#[rustfmt::skip]
fn counters(status: &CacheStatus) -> [(&'static str, &'static str, u64); 24] {
    [
        ("memory_hits_total", "Lookups answered from memory.", status.memory_hits),
        ("device_hits_total", "Lookups answered by the device.", status.device_hits),
        ("misses_total", "Lookups not answered.", status.misses),
        ("hit_read_bytes_total", "Bytes of blocks given to readers.", status.hit_read_bytes),
        ("sequential_ios_bailed_total", "Reads in sequence that passed the cache by.", status.sequential_ios_bailed),
        ("inserted_bytes_total", "Bytes of blocks taken in.", status.bytes_inserted),
        ("written_bytes_total", "Bytes written to flash.", status.bytes_written),
        ("dropped_total", "Blocks not taken in.", status.dropped),
        ("damaged_total", "Blocks that were damaged.", status.damaged),
        ("evicted_total", "Blocks evicted.", status.evicted),
        ("outages_total", "Times that a source did not answer.", status.outages),
        ("offline_reads_total", "Reads answered while a source did not answer.", status.offline_reads),
        ("offline_answers_total", "Other questions answered while a source did not answer.", status.offline_answers),
        ("predict_requests_total", "Blocks asked for while prefetching was on.", status.predict.requests),
        ("prefetched_blocks_total", "Blocks prefetched.", status.predict.blocks_fetched),
        ("prefetched_bytes_total", "Bytes prefetched.", status.predict.bytes_fetched),
        ("prefetched_used_total", "Prefetched blocks that were asked for in time.", status.predict.sources.iter().map(|of| of.used).sum()),
        ("prefetched_late_total", "Blocks asked for while they were being prefetched.", status.predict.sources.iter().map(|of| of.late).sum()),
        ("memory_short_total", "Times that memory was short.", status.predict.bringing.episodes),
        ("brought_back_bytes_total", "Bytes brought back into the kernel's memory.", status.predict.bringing.bytes),
        ("brought_back_source_bytes_total", "Those of them that were read from a disk.", status.predict.bringing.bytes_from_source),
        ("brought_back_used_bytes_total", "Those of them whose file a program opened since.", status.predict.bringing.bytes_used),
        ("brought_back_lost_bytes_total", "Those of them that were thrown out again.", status.predict.bringing.bytes_lost),
        ("turned_off_total", "Times that the device failed or stalled.", status.turned_off),
    ]
}

/// Returns name, help and value of each gauge.
#[rustfmt::skip]
fn gauges(status: &CacheStatus) -> [(&'static str, &'static str, f64); 11] {
    [
        ("on", "Whether the cache is in use.", f64::from(u8::from(status.is_on))),
        ("offline", "Whether a source does not answer.", f64::from(u8::from(status.is_offline))),
        ("offline_seconds", "How long it has not answered.", status.offline_seconds),
        ("size_bytes", "Bytes of the cache's file.", status.size_bytes as f64),
        ("blocks", "Blocks in the cache.", status.blocks as f64),
        ("hit_ratio", "Share of the lookups that were answered.", status.hit_ratio),
        ("write_amplification", "Bytes written for each byte kept.", status.write_amplification),
        ("compression_ratio", "Bytes taken in for each byte kept.", status.compression_ratio),
        ("bringing_back", "Whether blocks are brought back into the kernel's memory.", f64::from(u8::from(status.predict.bringing.state == "bringing back"))),
        ("pinned_bytes", "Bytes of pinned files.", status.pinned.bytes as f64),
        ("pinned_bytes_done", "Bytes of pinned files in the cache.", status.pinned.bytes_done as f64),
    ]
}

/// Adds the figures of write-back journals, each with the label of its share.
#[rustfmt::skip]
pub(super) fn add_backlogs(page: &mut Families, journals: &[Backlog]) {
    type Figure = (&'static str, &'static str, &'static str, fn(&Backlog) -> f64);
    let figures: [Figure; 9] = [
        ("files", "gauge", "Files that the far share lacks something of.", |one| one.files as f64),
        ("bytes", "gauge", "Bytes that the far share lacks.", |one| one.bytes as f64),
        ("oldest_seconds", "gauge", "Age of the oldest backlog.", |one| one.oldest_s as f64),
        ("journal_bytes", "gauge", "Bytes that the journal takes.", |one| one.journal_bytes as f64),
        ("waiting", "gauge", "Whether a backlog waits after an error.", |one| f64::from(u8::from(!one.last_error.is_empty()))),
        ("failing", "gauge", "Whether writes go past the journal, since its disk fails.", |one| f64::from(u8::from(!one.failing_because.is_empty()))),
        ("drained_bytes_total", "counter", "Bytes written back.", |one| one.drained_bytes as f64),
        ("conflicts_total", "counter", "Backlogs saved under another name.", |one| one.conflicts as f64),
        ("damaged_total", "counter", "Files whose journal was damaged.", |one| one.damaged as f64),
    ];
    for (name, kind, help, value) in figures {
        let rows = journals.iter().map(|one| (labels(&[("share", &one.far)]), value(one)));
        page.add_rows(&format!("ropeway_write_back_{name}"), kind, help, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn the_page_has_the_figures() {
        let status = CacheStatus {
            misses: 42,
            is_on: true,
            ..CacheStatus::default()
        };
        let mut page = Families::default();
        add(&mut page, &status);
        let page = page.text(Format::Text);
        assert!(page.contains("\nropeway_boost_misses_total 42\n"), "{page}");
        assert!(page.contains("\nropeway_boost_on 1\n"), "{page}");
    }

    #[test]
    fn each_journal_has_a_row_of_its_own() {
        let mut page = Families::default();
        let one = |far: &str, bytes| Backlog {
            far: far.to_owned(),
            bytes,
            ..Backlog::default()
        };
        add_backlogs(&mut page, &[]);
        add_backlogs(&mut page, &[one("smb://a/b", 5), one("smb://c/\"d", 6)]);
        let page = page.text(Format::Text);
        assert!(
            page.contains("\nropeway_write_back_bytes{share=\"smb://a/b\"} 5\n"),
            "{page}"
        );
        assert!(
            page.contains("\nropeway_write_back_bytes{share=\"smb://c/\\\"d\"} 6\n"),
            "{page}"
        );
        assert_eq!(page.matches("# TYPE ropeway_write_back_bytes gauge").count(), 1);
    }
}
