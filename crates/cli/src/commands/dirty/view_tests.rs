//! Tests of the view: widths, and what odd names do to it.

use ropeway_dirty::estimate::Basis;
use ropeway_dirty::reading::{FileReading, MountReading, ProcessReading};
use ropeway_vfs::event::Eta;

use super::*;

const MIB: u64 = 1 << 20;

fn device() -> DeviceReading {
    let eta = Eta {
        seconds: 25.0,
        low: 22.0,
        high: 29.0,
    };
    DeviceReading {
        bdi: "7:0".into(),
        name: "loop0".into(),
        medium: Medium::Fixed,
        mounts: vec![MountReading {
            path: "/mnt/stick".into(),
            fstype: "ext4".into(),
            source: "/dev/loop0".into(),
            read_only: false,
        }],
        dirty_bytes: Some(500 * MIB),
        writeback_bytes: Some(12 * MIB),
        state: DeviceState::Writing,
        rate: Some(20.1 * MIB as f64),
        drain: Some(Drain {
            eta,
            basis: Basis::Measured,
        }),
        writers: Writers {
            state: WriterState::Free,
            ..Writers::default()
        },
        layers: vec![Layer::Image {
            path: "/tmp/image".into(),
            on: Some("vda".into()),
            dirty_bytes: Some(3 * MIB),
            writeback_bytes: Some(0),
        }],
        ..DeviceReading::default()
    }
}

fn reading() -> Reading {
    let mut reading = Reading {
        devices: vec![device()],
        ..Reading::default()
    };
    reading.machine.limits = Limits::between(4096 * MIB, 2048 * MIB);
    reading.machine.expire_seconds = 30.0;
    reading
}

fn style() -> Style<'static> {
    Style {
        by: None,
        target: None,
        width: Some(80),
    }
}

#[test]
fn a_device_has_one_row_of_80_columns_and_its_place_below() {
    let lines = lines(&reading(), &style());
    let row = lines.iter().position(|line| line.starts_with("loop0")).unwrap();
    assert_eq!(
        lines[row],
        "loop0       500.0 MiB   12.0 MiB    3.0 GiB   20.1 MiB/s    25s (22-29s) free"
    );
    assert_eq!(lines[row - 1], HEADER);
    assert_eq!(HEADER.len(), 80);
    assert_eq!(
        lines[row + 1],
        "  /mnt/stick (ext4) · image /tmp/image on vda, itself 3.0 MiB dirty"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
}

#[test]
fn the_state_fits_one_line() {
    let machine = reading().machine;
    let mut shown = device();
    assert_eq!(
        state_line(&shown, &machine),
        "loop0: 512.0 MiB left at 20.1 MiB/s, drained in 25s (22-29s); writers are free"
    );
    shown.state = DeviceState::Waiting;
    shown.writers.state = WriterState::Held;
    shown.writers.threads = 2;
    shown.writers.paused_ms = Some(1500);
    assert_eq!(
        state_line(&shown, &machine),
        "loop0: 512.0 MiB dirty, write-back begins within 30 s; 2 writers are held (1.5 s of pauses)"
    );
    shown.state = DeviceState::Clean;
    assert!(state_line(&shown, &machine).starts_with("loop0: clean;"));
    shown.dirty_bytes = None;
    assert!(state_line(&shown, &machine).contains("not known"));
    shown.state = DeviceState::Writing;
    shown.backlog_bytes_max = Some(5 * MIB);
    assert!(state_line(&shown, &machine).starts_with("loop0: at most 5.0 MiB left"));
}

#[test]
fn odd_names_cannot_control_the_terminal_and_long_ones_are_cut() {
    let mut reading = reading();
    reading.devices[0].name = "fuse.\x1b[31m-a-very-long-name".into();
    reading.devices[0].mounts[0].path = "/mnt/\x07bell".into();
    reading.offenders = Offenders {
        processes: vec![ProcessReading {
            pid: 4711,
            name: "evil\n\x1b[2J".into(),
            dirtied_rate: Some(64.0 * MIB as f64),
            open_bytes: Some(512 * MIB),
            held: true,
        }],
        files: vec![FileReading {
            path: format!("/mnt/{}", "x".repeat(300)).into(),
            bdi: "7:0".into(),
            dirty_bytes: 1,
            writeback_bytes: 0,
            pids: vec![4711],
        }],
        ..Offenders::default()
    };
    let lines = lines(&reading, &style());
    assert!(
        lines.iter().all(|line| !line.contains(char::is_control)),
        "{lines:#?}"
    );
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("evil??[2J (4711)") && line.ends_with("held"))
    );
}

#[test]
fn without_a_terminal_busy_devices_have_a_line_each() {
    let mut reading = reading();
    assert_eq!(log_lines(&reading).len(), 1);
    assert!(log_lines(&reading)[0].contains(" loop0: 512.0 MiB left"));
    reading.devices[0].state = DeviceState::Clean;
    assert!(log_lines(&reading)[0].ends_with("every device is clean"));
    // Devices that cannot be told apart are not clean.
    reading.devices.clear();
    assert!(log_lines(&reading)[0].contains(" dirty, "));
}

#[test]
fn own_limits_and_unknown_amounts_are_marked() {
    let machine = reading().machine;
    let mut shown = device();
    shown.own_limits = Some(Limits::between(40 * MIB, 20 * MIB));
    shown.dirty_bytes = None;
    shown.writeback_bytes = None;
    shown.backlog_bytes_max = Some(512 * MIB);
    let text = row(&shown, &machine);
    assert!(
        text.contains("≤512.0 MiB") && text.contains("30.0 MiB") && text.contains(" ? "),
        "{text}"
    );
    assert!(text.chars().count() <= 80, "{text}");
}
