//! Lines of the trace event `writeback:balance_dirty_pages`: a writer that the kernel makes wait.
//!
//! Source: include/trace/events/writeback.h and Documentation/trace/ftrace.rst. `pause` is the time
//! that the writer is about to wait, in milliseconds; a negative one means that it goes on. The
//! columns before the event's name differ from kernel to kernel, so only the process id before the
//! processor's number is read there.

/// Longest pause that is believed, in milliseconds. The kernel's own limit is 200 (mm/page-writeback.c,
/// `MAX_PAUSE`).
const PAUSE_MAX_MS: i64 = 10_000;

/// One pause of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Thread that waits.
    pub thread: u32,
    /// Name of the device, as in `/sys/class/bdi`.
    pub bdi: String,
    /// Length of the pause in milliseconds.
    pub pause_ms: u64,
}

impl Pause {
    /// Parses a line; `None` for other events and for writers that go on.
    pub fn parse(line: &str) -> Option<Self> {
        let (before, event) = line.split_once(": balance_dirty_pages: bdi ")?;
        let (bdi, values) = event.split_once(": ")?;
        let pause: i64 = values
            .split_whitespace()
            .find_map(|word| word.strip_prefix("pause="))?
            .parse()
            .ok()?;
        // `dd-1234  [001] ..... 12.345678`; the name may hold blanks and hyphens.
        let (task, _) = before.rsplit_once(" [")?;
        let (_, thread) = task.trim_end().rsplit_once('-')?;
        let is_name = |name: &str| {
            let mut letters = name.chars();
            (1..=64).contains(&name.len()) && letters.all(|letter| letter.is_ascii_graphic() && letter != '/')
        };
        Some(Self {
            thread: thread.parse().ok()?,
            bdi: Some(bdi).filter(|bdi| is_name(bdi))?.to_owned(),
            pause_ms: u64::try_from(pause.min(PAUSE_MAX_MS))
                .ok()
                .filter(|pause| *pause > 0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OLD: &str = "              dd-5563  [025] ....   165.504338: balance_dirty_pages: bdi 8:144: limit=1048576 \
                       setpoint=917504 dirty=950856 bdi_setpoint=83005 bdi_dirty=81032 dirty_ratelimit=63408 \
                       task_ratelimit=63592 dirtied=32 dirtied_pause=32 paused=0 pause=4 period=4 think=0";
    const NEW: &str = "         my prog-1-1206590 [003] ..... 62988.324049: balance_dirty_pages: bdi 0:51: limit=295073 \
                       setpoint=259360 dirty=454 wb_setpoint=0 wb_dirty=32 dirty_ratelimit=18716 task_ratelimit=0 \
                       dirtied=32 dirtied_pause=32 paused=0 pause=200 period=200 think=0 cgroup_ino=1";

    #[test]
    fn lines_of_old_and_new_kernels_are_understood() {
        let old = Pause::parse(OLD).unwrap();
        assert_eq!((old.thread, old.bdi.as_str(), old.pause_ms), (5563, "8:144", 4));
        let new = Pause::parse(NEW).unwrap();
        assert_eq!(
            (new.thread, new.bdi.as_str(), new.pause_ms),
            (1_206_590, "0:51", 200)
        );
    }

    #[test]
    fn writers_that_go_on_and_other_events_are_left_out() {
        assert_eq!(Pause::parse(&NEW.replace(" pause=200", " pause=-12")), None);
        assert_eq!(Pause::parse(&NEW.replace(" pause=200", " pause=0")), None);
        assert_eq!(
            Pause::parse("dd-1 [000] .... 1.0: global_dirty_state: dirty=1"),
            None
        );
        assert_eq!(Pause::parse(&NEW.replace("0:51", "../x")), None);
        let long = Pause::parse(&NEW.replace(" pause=200", " pause=99999999")).unwrap();
        assert_eq!(long.pause_ms, 10_000);
    }

    proptest! {
        #[test]
        fn damaged_lines_never_break_it(cut in 0_usize..320, at in 0_usize..320, byte in any::<u8>()) {
            let mut bytes = NEW.as_bytes().to_vec();
            bytes.truncate(cut);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            if let Some(pause) = Pause::parse(&String::from_utf8_lossy(&bytes)) {
                prop_assert!(pause.pause_ms > 0 && pause.bdi.len() <= 64);
            }
        }
    }
}
