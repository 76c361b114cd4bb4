//! Options of a server and their defaults.

use std::sync::Arc;
use std::time::Duration;

use ropeway_smb_proto::auth::ntlm::ServerNames;
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::server::hub::HubLimits;
use ropeway_smb_proto::server::{Accounts, Config, Random, Sealing};
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{Guid, Text};

use crate::accounts::{self, Directory};
use crate::audit::Audit;
use crate::share::Share;

/// How a server serves.
pub struct ServerOptions {
    /// The protocol's side.
    pub config: Config,
    /// What the server calls itself, for users' eyes.
    pub name: String,
    /// What is shared.
    pub shares: Vec<Share>,
    /// What spans connections is bounded by this.
    pub limits: HubLimits,
    /// The most connections at once.
    pub connections_max: usize,
    /// A connection that nobody has logged in on ends after so long.
    pub login_timeout: Duration,
    /// Bytes of answers that clients have not taken, of all connections together: beyond, each is given one request's after
    /// the other.
    pub unsent_max: usize,
    /// A connection ends that takes nothing of its answers for so long; sooner while there are too many.
    pub send_timeout: Duration,
    /// Threads for what waits for a device.
    pub io_threads: usize,
    /// Byte-range locks of clients and locks of local programs exclude each other, where the store has such locks.
    pub posix_locks: bool,
    /// Who there is, for clients that ask for names of accounts.
    pub directory: Arc<dyn Directory>,
    /// What the server's own SIDs have that no other machine's have: S-1-5-21 and these. At random, unless they are to
    /// stay the same when the server starts again.
    pub machine_sid: [u32; 3],
    /// Who is told what clients do.
    pub audit: Option<Arc<dyn Audit>>,
    /// Gives the system back what was freed and the allocator keeps; called when a connection has ended that had much.
    pub release_memory: Option<fn()>,
    /// Changes the answers.
    #[cfg(feature = "fuzzing")]
    #[doc(hidden)]
    pub reply_mutator: Option<Arc<dyn crate::fuzzing::reply_mutator::ReplyMutator>>,
}

impl ServerOptions {
    /// Defaults for a machine of this size: everything from SMB 2.0.2 to 3.1.1, signatures required.
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
            leasing: true,
            compression: Algorithms {
                lz4: true,
                lznt1: false,
                pattern_v1: true,
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
            connections_max: 4096,
            // A guess: people type passwords before they connect.
            login_timeout: Duration::from_secs(60),
            unsent_max: unsent_max(),
            // A guess: longer than a path that fails and comes back.
            send_timeout: Duration::from_secs(60),
            // Devices answer several requests at once, so more than there are processors. A guess.
            io_threads: (4 * processors).clamp(8, 64),
            posix_locks: true,
            directory: Arc::new(accounts::NoAccounts),
            machine_sid: std::array::from_fn(|at| u32::from_le_bytes(numbers[at])),
            audit: None,
            release_memory: None,
            #[cfg(feature = "fuzzing")]
            reply_mutator: None,
        }
    }
}

/// A sixteenth of the machine's memory, and at least 64 MiB (a guess).
fn unsent_max() -> usize {
    let info = rustix::system::sysinfo();
    let units = usize::try_from(info.totalram).unwrap_or(usize::MAX);
    let unit = usize::try_from(info.mem_unit).unwrap_or(1);
    (units / 16).saturating_mul(unit).max(64 << 20)
}

/// From the kernel.
fn fill_random(mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match rustix::rand::getrandom(&mut *bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => bytes = &mut bytes[count..],
            Err(rustix::io::Errno::INTR) => {}
            // getrandom(2): with these flags and a valid buffer nothing else can go wrong.
            Err(error) => panic!("the kernel has no random numbers: {error}"),
        }
    }
}
