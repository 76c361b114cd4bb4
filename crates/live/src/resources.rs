//! What this process takes of the machine, from /proc.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::model::Resources;

/// Returns the kernel's figures for this process.
pub(crate) fn own() -> Resources {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let kib = |name: &str| {
        let number: u64 = field(name)?.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(number.saturating_mul(1024))
    };
    // The descriptor of the folder itself is one of them.
    let fds = fs::read_dir("/proc/self/fd").map(|entries| entries.count().saturating_sub(1) as u64);
    Resources {
        resident_bytes: kib("VmRSS:"),
        virtual_bytes: kib("VmSize:"),
        threads: field("Threads:").and_then(|text| text.trim().parse().ok()),
        open_fds: fds.ok(),
        fds_max: getrlimit(Resource::Nofile).current,
        cpu_seconds: cpu_seconds(),
    }
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 14 and 15 of proc_pid_stat(5). The name in field 2 may contain blanks and ends at the
    // last parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_tells_all_of_them() {
        let own = super::own();
        assert!(own.resident_bytes.is_some_and(|bytes| bytes > 1 << 20), "{own:?}");
        assert!(own.virtual_bytes >= own.resident_bytes, "{own:?}");
        assert!(own.threads >= Some(1) && own.open_fds >= Some(3), "{own:?}");
        assert!(own.cpu_seconds.is_some_and(|seconds| seconds >= 0.0), "{own:?}");
    }
}
