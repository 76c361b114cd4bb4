//! What was measured, where and how: the facts at the end of the page.

use crate::bench::cell::{bytes, short};
use crate::bench::result::{Device, Report};
use crate::report::numbers::{number, prefixed};

pub(super) fn facts(report: &Report) -> Vec<(String, Vec<[String; 2]>)> {
    vec![
        ("Target and machine".to_owned(), of_target(report)),
        ("Settings".to_owned(), of_run(report)),
    ]
}

fn of_target(report: &Report) -> Vec<[String; 2]> {
    let (target, conditions) = (&report.target, &report.conditions);
    let machine = &conditions.machine;
    let link = conditions.link.as_ref();
    let dirty = conditions.dirty_background_bytes;
    let facts = [
        ("Target", Some(target.shown.clone())),
        ("Program", Some(report.program.clone())),
        ("File system", target.file_system.clone()),
        ("Source", target.source.clone()),
        ("Connection", target.connection.clone()),
        (
            "Link",
            link.map(|link| format!("{}, {}", link.name, prefixed(link.bits_per_s as f64, "bit/s"))),
        ),
        ("Device", conditions.device.as_ref().map(device)),
        ("System", Some(machine.system.clone())),
        ("Kernel", Some(machine.kernel.clone())),
        (
            "Processors",
            Some(format!("{} × {}", machine.processors, machine.processor)),
        ),
        ("Memory", Some(bytes(machine.memory_bytes))),
        // Whole MiB, as in the warnings.
        (
            "Write-back begins at",
            dirty.map(|count| bytes(count & !((1 << 20) - 1))),
        ),
        ("Load at the start", Some(number(conditions.load))),
    ];
    let known = facts
        .into_iter()
        .filter_map(|(name, value)| Some([name.to_owned(), value?]));
    known.collect()
}

fn of_run(report: &Report) -> Vec<[String; 2]> {
    let settings = &report.settings;
    let sizes = |values: &[u64]| list(values.iter().map(|value| short(*value)));
    let far = report.conditions.far;
    let cache = match (settings.keep_cache, settings.drop_caches) {
        _ if far => "this machine keeps nothing of the files",
        (true, _) => "kept between passes",
        (_, true) => "all caches of the kernel dropped before cold passes",
        _ => "pages of the file dropped before cold passes",
    };
    let facts = [
        ("File sizes", sizes(&settings.sizes)),
        ("Record sizes", sizes(&settings.records)),
        (
            "Patterns",
            list(settings.patterns.iter().map(|one| one.name().to_owned())),
        ),
        (
            "Modes",
            list(settings.modes.iter().map(|one| one.name().to_owned())),
        ),
        ("In flight", list(settings.depths.iter().map(u32::to_string))),
        (
            "Requests",
            match far {
                true => settings.engine.clone(),
                false => format!("one: pread and pwrite; several: {}", settings.engine),
            },
        ),
        ("Rounds", settings.runs.to_string()),
        ("Time limit of a pass", format!("{} s", settings.pass_seconds)),
        ("Budget", format!("{} s", settings.budget_seconds)),
        ("Page cache", cache.to_owned()),
        ("Data", "random, different in each 4 KiB".to_owned()),
        ("Seed", settings.seed.to_string()),
    ];
    facts.map(|(name, value)| [name.to_owned(), value]).to_vec()
}

fn list(values: impl Iterator<Item = String>) -> String {
    values.collect::<Vec<_>>().join(", ")
}

fn device(device: &Device) -> String {
    let kind = match device.rotational {
        Some(true) => ", rotational",
        Some(false) => ", not rotational",
        None => "",
    };
    let cache = match device.write_cache {
        Some(true) => ", with a write cache",
        Some(false) => ", without a write cache",
        None => "",
    };
    format!("{}{kind}{cache}", device.name)
}
