//! Sets up one end: the device, its address and route, and the settings of TCP and of local sockets.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ropeway_peers::feed;

use super::error::LinkError;
use super::namespace::Namespace;
use super::spec::{LinkSpec, Rate, TcpSpec};
use super::sys::Tun;

/// Name of the device at both ends.
const DEVICE: &str = "ropeway0";
/// Packets that may wait in the kernel. Only the line's queue may drop packets, not this one (the
/// default is 500).
const DEVICE_QUEUE: u32 = 20_000;
/// Longest wire time of an offloaded packet, about what TCP's pacing makes by itself. A packet comes out
/// whole, so it is late by this time.
const PACKET_TIME: Duration = Duration::from_millis(1);
/// Datagrams that wait at a Unix socket: what systemd sets at boot. A new namespace has the kernel's 10,
/// which smbd's processes fill with messages to each other about changed files: what does not fit waits in
/// a list that is walked for each message, and 100,000 small files took minutes.
const UNIX_QUEUE: &str = "512";
/// Largest size of packets of segmentation offload.
const OFFLOAD_MAX_BYTES: u64 = 65_536;

/// Creates the device inside a namespace and configures it. Also returns the congestion control.
pub(super) fn end(
    namespace: &Namespace,
    own: Ipv4Addr,
    other: Ipv4Addr,
    spec: &LinkSpec,
    rate: Option<Rate>,
) -> Result<(Tun, String), LinkError> {
    let made = namespace.run(|| {
        // Address discovery would add packets that no program sends.
        _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        _ = fs::write("/proc/sys/net/unix/max_dgram_qlen", UNIX_QUEUE);
        settings(&spec.tcp)?;
        let tun = device()?;
        ip(&commands(own, other, spec, rate))?;
        let congestion = match &spec.tcp.congestion {
            Some(congestion) => congestion.name().to_owned(),
            None => sysctl_read("tcp_congestion_control")?,
        };
        Ok((tun, congestion))
    });
    made.map_err(|error| LinkError::of("enter a network namespace", error))?
}

fn device() -> Result<Tun, LinkError> {
    Tun::make(DEVICE).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LinkError::Missing {
            what: "/dev/net/tun".to_owned(),
            hint: "load the module tun, or make the node: mknod /dev/net/tun c 10 200",
        },
        _ => LinkError::of("make a TUN device", error),
    })
}

fn settings(tcp: &TcpSpec) -> Result<(), LinkError> {
    // Otherwise the second run would use what TCP learnt in the first.
    sysctl("tcp_no_metrics_save", "1")?;
    if tcp.ecn {
        sysctl("tcp_ecn", "1")?;
    }
    if let Some(bytes) = tcp.buffer_max_bytes {
        for name in ["tcp_rmem", "tcp_wmem"] {
            let before = sysctl_read(name)?;
            let mut numbers: Vec<u64> = before.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            if let [least, default, most] = numbers.as_mut_slice() {
                *most = bytes;
                *default = bytes.min(*default);
                *least = bytes.min(*least);
            }
            let text: Vec<String> = numbers.iter().map(u64::to_string).collect();
            sysctl(name, &text.join(" "))?;
        }
    }
    Ok(())
}

fn sysctl(name: &str, value: &str) -> Result<(), LinkError> {
    let path = Path::new("/proc/sys/net/ipv4").join(name);
    fs::write(path, value).map_err(|error| LinkError::of("change a setting of TCP", error))
}

fn sysctl_read(name: &str) -> Result<String, LinkError> {
    let path = Path::new("/proc/sys/net/ipv4").join(name);
    let text = fs::read_to_string(path).map_err(|error| LinkError::of("read a setting of TCP", error))?;
    Ok(text.trim().to_owned())
}

/// Returns the commands for `ip -batch`.
fn commands(own: Ipv4Addr, other: Ipv4Addr, spec: &LinkSpec, rate: Option<Rate>) -> String {
    let offload = match rate {
        Some(rate) => rate
            .bytes_in(PACKET_TIME)
            .clamp(2 * u64::from(spec.mtu), OFFLOAD_MAX_BYTES)
            .min(OFFLOAD_MAX_BYTES),
        None => OFFLOAD_MAX_BYTES,
    };
    let mut route = format!("route replace {other}/32 dev {DEVICE} src {own}");
    if let Some(congestion) = &spec.tcp.congestion {
        let lock = if spec.tcp.congestion_open { "" } else { "lock " };
        route.push_str(&format!(" congctl {lock}{}", congestion.name()));
    }
    // The line itself enforces small windows.
    if let (Some(window), None) = (spec.tcp.window_max_bytes, spec.tcp.small_window()) {
        route.push_str(&format!(" window {window}"));
    }
    if let Some(segments) = spec.tcp.initial_window {
        route.push_str(&format!(" initcwnd {segments}"));
    }
    format!(
        "link set lo up\n\
         link set {DEVICE} mtu {} txqueuelen {DEVICE_QUEUE} gso_max_size {offload} up\n\
         address add {own}/32 dev {DEVICE}\n\
         {route}\n",
        spec.mtu
    )
}

/// Runs iproute2's `ip`; the caller's thread is inside the namespace.
fn ip(batch: &str) -> Result<(), LinkError> {
    let program = ropeway_peers::program("ip").unwrap_or_else(|| "ip".into());
    let output = feed(Command::new(program).args(["-batch", "-"]), batch);
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => LinkError::Missing {
            what: "the program ip".to_owned(),
            hint: "install iproute2 (apt install iproute2)",
        },
        _ => LinkError::of("run ip", error),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().next().unwrap_or("ip failed").trim();
    let line = line.strip_prefix("Error: ").unwrap_or(line).to_owned();
    // iproute2 ends with the place of the fault; the fourth line is the route with the user's choice.
    if said.contains("Command failed -:4") {
        let known = sysctl_read("tcp_available_congestion_control").unwrap_or_default();
        return Err(LinkError::Spec(format!(
            "the kernel refuses these settings of TCP: {line} (congestion controls here: {known})"
        )));
    }
    Err(LinkError::Io {
        what: "set up the link".to_owned(),
        source: io::Error::other(line),
    })
}
