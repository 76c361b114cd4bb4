//! Options of a server and their defaults.

use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_proto::auth::ntlm::ServerNames;
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::server::hub::HubLimits;
use ropeway_smb_proto::server::{Accounts, Config, Random, Sealing};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{Guid, Text};
use ropeway_tcp::Congestion;

use crate::accounts::{self, Directory};
use crate::audit::Audit;
use crate::foreign::ForeignProtocol;
use crate::share::Share;

/// Settings of a server. [`ServerOptions::new`] gives the defaults.
pub struct ServerOptions {
    /// Settings of the protocol.
    pub config: Config,
    /// Name of the server, shown to users.
    pub name: String,
    /// The shares.
    pub shares: Vec<Share>,
    /// Limits of the hub: opens, leases, locks, watches.
    pub limits: HubLimits,
    /// Congestion control of what the server sends: by default BBR to clients on a long line, where the
    /// kernel allows it.
    pub congestion: Congestion,
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Time after which a connection without a login ends.
    pub login_timeout: Duration,
    /// Limit for the response bytes of all connections that clients have not received yet. Above
    /// it, each connection gets one response at a time.
    pub unsent_max: usize,
    /// Time after which a connection ends whose client receives nothing of its responses; shorter
    /// while there are more than `unsent_max` bytes.
    pub send_timeout: Duration,
    /// Number of threads for requests that wait for a device.
    pub io_threads: usize,
    /// Whether byte-range locks of clients and of local programs exclude each other, where the
    /// store supports it.
    pub posix_locks: bool,
    /// Accounts for clients that ask for names and SIDs.
    pub directory: Arc<dyn Directory>,
    /// Numbers that follow S-1-5-21 in the server's own SIDs. They are random unless the caller
    /// keeps them across restarts.
    pub machine_sid: [u32; 3],
    /// Receiver of audit records.
    pub audit: Option<Arc<dyn Audit>>,
    /// Another protocol to serve.
    pub foreign: Option<Arc<dyn ForeignProtocol>>,
    /// Returns freed memory from the allocator to the system. The server calls it after a
    /// connection that used much memory.
    pub release_memory: Option<fn()>,
    /// Returns the unused pages of the calling thread's stack to the system. The server calls it when a
    /// connection becomes idle.
    pub release_stack: Option<fn()>,
    /// Changes the responses, for storms against a client.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    pub reply_mutator: Option<Arc<dyn crate::fuzzing::reply_mutator::ReplyMutator>>,
}

impl ServerOptions {
    /// Returns the defaults for this machine: SMB 2.0.2 to 3.1.1, signatures required.
    pub fn new(name: &str, accounts: Accounts) -> Self {
        let random: Random = Arc::new(|bytes: &mut [u8]| fill_random(bytes));
        let mut server_guid = [0; 16];
        random(&mut server_guid);
        let mut machine = [0; 12];
        random(&mut machine);
        let (numbers, _) = machine.as_chunks::<4>();
        let upper: String = name.chars().take(15).collect::<String>().to_uppercase();
        let config = Config {
            server_guid: Guid(server_guid),
            names: ServerNames {
                netbios_computer: Text::from(upper.as_str()),
                netbios_domain: Text::from(upper.as_str()),
                dns_computer: Text::from(name),
                dns_domain: Text::from(""),
            },
            dialect_min: Dialect::Smb202,
            dialect_max: Dialect::Smb311,
            signing_required: true,
            sealing: Sealing::Offered,
            anonymous: false,
            guest: false,
            multichannel: true,
            persistent_handles: false,
            leasing: true,
            compression: Algorithms {
                lz4: true,
                lznt1: false,
                pattern_v1: true,
                zstd: true,
            },
            io_max: Config::IO_MAX,
            credits_max: Config::CREDITS_MAX,
            sessions_per_connection_max: 256,
            accounts,
            mechanisms: None,
            random,
        };
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            config,
            name: name.to_owned(),
            shares: Vec::new(),
            limits: HubLimits::default(),
            congestion: Congestion::default(),
            connections_max: 4096,
            // A guess: people type passwords before they connect.
            login_timeout: Duration::from_secs(60),
            unsent_max: unsent_max(),
            // A guess: longer than the loss and return of a network path.
            send_timeout: Duration::from_secs(60),
            // Devices serve several requests at once, so more than the number of processors. A
            // guess.
            io_threads: (4 * processors).clamp(8, 64),
            posix_locks: true,
            directory: Arc::new(accounts::NoAccounts),
            machine_sid: std::array::from_fn(|at| u32::from_le_bytes(numbers[at])),
            audit: None,
            foreign: None,
            release_memory: None,
            release_stack: None,
            #[cfg(feature = "fuzzing")]
            reply_mutator: None,
        }
    }
}

/// Returns a sixteenth of the machine's memory, and at least 64 MiB (a guess).
fn unsent_max() -> usize {
    let info = rustix::system::sysinfo();
    let units = usize::try_from(info.totalram).unwrap_or(usize::MAX);
    let unit = usize::try_from(info.mem_unit).unwrap_or(1);
    (units / 16).saturating_mul(unit).max(64 << 20)
}

/// Fills a buffer with random bytes from the kernel.
fn fill_random(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            // getrandom(2) has no other error with these flags and a valid buffer.
            Err(error) => panic!("the kernel has no random numbers: {error}"),
        }
    }
}
