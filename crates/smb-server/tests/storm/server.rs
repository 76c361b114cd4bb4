//! Hostile requests: sessions of some thousand frames against a server over a real folder.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ropeway_local::{LocalStore, StoreOptions};
use ropeway_smb_proto::auth::ntlm::nt_hash;
use ropeway_smb_proto::compression::Algorithms;
use ropeway_smb_proto::secret::{NtHash, Password};
use ropeway_smb_proto::server::Accounts;
use ropeway_smb_server::fuzzing::FrameHost;
use ropeway_smb_server::{ServerOptions, Share};
use ropeway_smb_wire::FileAttributes;
use ropeway_smb_wire::create::{CreateOptions, CreateResponse};
use ropeway_smb_wire::header::Command;
use ropeway_smb_wire::ioctl::IoctlResponse;
use ropeway_smb_wire::read::ReadResponse;
use ropeway_smb_wire::{NtStatus, Text};

use crate::canaries::Canaries;
use crate::chance::{Random, content};
use crate::connection::{Connection, Reply};
use crate::grammar::{self, Known};
use crate::mutate::{self, Mutation};
use crate::raw::{Create, close_body};
use crate::runner::{Counts, Session};
use crate::session_kind::SessionKind;
use crate::{checks, samples, values};

/// Number of frames in a session.
const FRAMES: u64 = 3000;
/// Maximum number of opens of a server, so that some are refused.
const OPENS_MAX: usize = 400;
/// Number of pending requests after which the connection is lost on purpose.
const PENDING_MAX: usize = 200;

/// Returns the options of a server over its own folder.
pub(crate) fn options(share: &Path, mut random: Random) -> ServerOptions {
    let hash = *nt_hash(&Password::from("secret")).expose();
    let alice = Text::from("alice");
    let accounts: Accounts =
        Arc::new(move |user: &Text, _: &Text| (*user == alice).then(|| NtHash::from_bytes(hash)));
    let mut options = ServerOptions::new("server", accounts);
    let store = LocalStore::open(share, &StoreOptions::default()).expect("the folder is there");
    options.shares = vec![Share::new("data", Arc::new(store))];
    options.config.compression = Algorithms {
        lz4: true,
        lznt1: true,
        pattern_v1: true,
        zstd: true,
    };
    // The same in every run.
    let count = AtomicU64::new(random.next());
    options.config.random = Arc::new(move |bytes: &mut [u8]| {
        for chunk in bytes.chunks_mut(8) {
            let value = count.fetch_add(1, Ordering::Relaxed);
            let value = value.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            chunk.copy_from_slice(&value.to_le_bytes()[..chunk.len()]);
        }
    });
    options
}

/// Creates the initial content of the share.
pub(crate) fn fill_share(share: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(share.join("folder/sub"))?;
    std::fs::write(share.join("file"), content(0, 10_000))?;
    std::fs::write(share.join("folder/inner"), "inner")?;
    std::os::unix::fs::symlink("../outside", share.join("escape"))?;
    std::os::unix::fs::symlink("file", share.join("link"))
}

/// Empties the share, although the storm may have filled the volume or removed all permissions.
fn empty(share: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(share)? {
        let path = entry?.path();
        match std::fs::symlink_metadata(&path)?.is_dir() {
            true => std::fs::remove_dir_all(&path)?,
            false => std::fs::remove_file(&path)?,
        }
    }
    let mut names = Vec::with_capacity(4096);
    rustix::fs::listxattr(share, rustix::buffer::spare_capacity(&mut names))?;
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        rustix::fs::removexattr(share, name)?;
    }
    std::fs::set_permissions(share, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

struct StormSession<'a, 'b> {
    session: &'a mut Session<'b>,
    host: FrameHost,
    kind: SessionKind,
    line: Connection,
    known: Known,
    counts: Counts,
}

/// Runs a session.
///
/// # Errors
/// What the server did wrong.
pub(crate) fn session(session: &mut Session<'_>) -> Result<Counts, String> {
    let kept = Canaries::new(session.folder)?;
    let share = session.folder.join("share");
    fill_share(&share).map_err(|error| format!("no share: {error}"))?;
    let mut options = options(&share, session.random.clone());
    options.limits.opens_max = OPENS_MAX;
    options.limits.durable_timeout_ms = 1;
    options.limits.durable_timeout_max_ms = 1;
    options.limits.break_timeout_ms = 20;
    let host = FrameHost::new(options);
    let kind = SessionKind::of(&mut session.random);
    let line = Connection::enter(&host, kind, &mut session.random)?;
    let mut storm = StormSession {
        session,
        host,
        kind,
        line,
        known: Known::default(),
        counts: Counts::default(),
    };
    storm.open_some()?;
    for frame in 0..FRAMES {
        storm.session.at(frame);
        let step = storm.step();
        step.map_err(|fault| format!("{fault}\nat frame {frame}, {kind:?}"))?;
    }
    storm.session.at(FRAMES);
    let counts = storm.end(&share)?;
    kept.check()?;
    Ok(counts)
}

impl StormSession<'_, '_> {
    /// Logs in again with a session of the same kind.
    fn log_in_again(&mut self) -> Result<(), String> {
        self.line.lose();
        self.counts.add("logins", 1);
        self.host.tick();
        self.line = Connection::enter(&self.host, self.kind, &mut self.session.random)?;
        self.known = Known::default();
        self.open_some()
    }

    /// Opens a file and a folder, as long as the limit allows.
    fn open_some(&mut self) -> Result<(), String> {
        for (name, is_folder) in [("file", false), ("folder", true), ("new1", false)] {
            let mut create = Create::of(name);
            if is_folder {
                create.options = CreateOptions::DIRECTORY_FILE;
            }
            let body = samples::body(|w| create.request().encode(w));
            let message = self.line.message(Command::Create, &body);
            let frame = self.line.wrap(&mut self.session.random, vec![message]);
            self.exchange(&frame)?;
        }
        Ok(())
    }

    /// Sends a frame and checks the responses; `None` if the server closed the connection.
    fn exchange(&mut self, frame: &[u8]) -> Result<Option<usize>, String> {
        let before = self.line.handled();
        let replies = self.line.send(frame)?;
        let Some(replies) = replies else {
            return Ok(None);
        };
        let reached = self.line.handled() > before;
        self.counts.reached += u64::from(reached);
        self.counts.add(self.kind.group(), u64::from(reached));
        self.counts.add(
            "requests that reached their command",
            self.line.handled() - before,
        );
        for reply in &replies {
            checks::check(&mut self.line, reply)?;
            self.learn(reply);
        }
        Ok(Some(replies.len()))
    }

    fn learn(&mut self, reply: &Reply) {
        let status = reply.header.status;
        if status == NtStatus::PENDING {
            return;
        }
        let is_fine = !status.is_error();
        self.counts.add(
            if is_fine {
                "answers: done"
            } else {
                "answers: refused"
            },
            1,
        );
        if status == NtStatus::USER_SESSION_DELETED || status == NtStatus::NETWORK_NAME_DELETED {
            self.line.clean = false;
        }
        if status != NtStatus::SUCCESS {
            return;
        }
        match reply.header.command {
            Command::Create => {
                if let Ok(created) = CreateResponse::decode(&mut reply.body()) {
                    let is_folder = created.file_attributes.contains(FileAttributes::DIRECTORY);
                    self.known
                        .opened(&mut self.session.random, created.file_id, is_folder);
                }
            }
            Command::Ioctl => {
                if let Ok(answer) = IoctlResponse::decode(&mut reply.body())
                    && let Some(key) = answer.output.first_chunk::<24>()
                {
                    self.known.resume_key = *key;
                }
            }
            Command::TreeConnect => {
                if let Some(tree) = reply.header.tree_id()
                    && self.session.random.percent(30)
                {
                    self.line.tree = tree;
                }
            }
            Command::Logoff | Command::TreeDisconnect => self.line.clean = false,
            _ => {}
        }
    }

    fn step(&mut self) -> Result<(), String> {
        let random = &mut self.session.random;
        if !self.line.is_alive()
            || self.line.pending.len() > PENDING_MAX
            || random.percent(1) && random.percent(10)
        {
            return self.log_in_again();
        }
        if !self.line.clean && random.percent(10) {
            return self.log_in_again();
        }
        match random.below(100) {
            0..2 => self.damage_protected(),
            2..16 => self.compound(),
            _ => self.single(),
        }
    }

    fn single(&mut self) -> Result<(), String> {
        let random = &mut self.session.random;
        let (command, body) = grammar::request(random, &mut self.known);
        let id = self.line.next_id;
        let mut message = self.line.message(command, &body);
        if random.percent(10) {
            // Large ones cost more credits, which must be granted.
            let charge = 1 + random.below(3) as u16;
            message[6..8].copy_from_slice(&charge.to_le_bytes());
            self.line.next_id = id + u64::from(charge);
        }
        let twist = mutate::message(random, &mut message, 2);
        let frame = self.line.wrap(random, vec![message]);
        let was_clean = self.line.clean;
        let outcome = self.exchange(&frame)?;
        match twist {
            Mutation::Header => self.line.clean = false,
            Mutation::Body => self.counts.add("frames with changed bodies", 1),
            Mutation::None => self.counts.add("frames unchanged", 1),
        }
        let may_end = matches!(
            command,
            Command::Negotiate | Command::SessionSetup | Command::Cancel
        );
        let is_known = twist == Mutation::None && was_clean && !may_end;
        if is_known && outcome.is_none() {
            return Err(format!("the server hung up at a valid {command:?}"));
        }
        if is_known && outcome == Some(0) {
            return Err(format!("no answer to a valid {command:?}"));
        }
        if outcome.is_none() {
            self.counts.add("frames that ended their connection", 1);
        }
        Ok(())
    }

    fn compound(&mut self) -> Result<(), String> {
        let random = &mut self.session.random;
        let count = 2 + random.below(4);
        let mut messages = Vec::new();
        let related = random.percent(70);
        for index in 0..count {
            let (command, body) = grammar::request(random, &mut self.known);
            let mut message = self.line.message(command, &body);
            if random.percent(40) {
                let twist = mutate::message(random, &mut message, 1);
                self.line.clean &= twist != Mutation::Header;
            }
            if index > 0 && related && message.len() > 16 {
                message[16] |= 4;
            }
            messages.push(message);
        }
        let frame = self.line.wrap(random, messages);
        let outcome = self.exchange(&frame)?;
        self.counts.add("frames that are compounds", 1);
        if outcome.is_none() {
            self.counts.add("frames that ended their connection", 1);
        }
        Ok(())
    }

    /// Changes what the storm's keys no longer protect: headers, nonces, compressed bytes, lengths.
    fn damage_protected(&mut self) -> Result<(), String> {
        let random = &mut self.session.random;
        let (command, body) = grammar::request(random, &mut self.known);
        let message = self.line.message(command, &body);
        let (_, seals) = self.line.protection();
        let frame = match self.kind.compression {
            // Wrong compressed bytes inside a correct seal.
            Some(how) if random.percent(70) => {
                let mut packed = crate::compress::pack(random, how, message);
                for _ in 0..=random.below(3) {
                    let reach = packed.len().min(40);
                    match random.percent(60) {
                        true => mutate::field(random, &mut packed[..reach], 4),
                        false => mutate::bytes(random, &mut packed, 8),
                    }
                }
                self.record_changed(&packed, how);
                self.line.seal(packed)
            }
            _ => {
                let mut frame = self.line.wrap(random, vec![message]);
                let reach = frame.len().min(if seals { 60 } else { 70 });
                match random.percent(70) {
                    true => mutate::field(random, &mut frame[..reach], 4),
                    false => mutate::bytes(random, &mut frame, 4),
                }
                self.record_changed(&frame, self.kind.compression.unwrap_or_default());
                frame
            }
        };
        self.line.clean = false;
        let outcome = self.exchange(&frame)?;
        self.counts
            .add("frames changed below signature, seal or compression", 1);
        if outcome.is_none() {
            self.counts.add("frames that ended their connection", 1);
        }
        Ok(())
    }

    /// Records the requests that a changed frame contains now.
    fn record_changed(&mut self, frame: &[u8], (algorithms, chained): (Algorithms, bool)) {
        let plain = match frame.starts_with(b"\xFCSMB") {
            true => ropeway_smb_proto::compression::decompress(frame, algorithms, chained, 1 << 24),
            false => Ok(frame.to_vec()),
        };
        if let Ok(plain) = plain {
            self.line.record(&plain);
        }
    }

    /// Checks that another client is served normally after the storm and that nothing is left of
    /// the session.
    fn end(mut self, share: &Path) -> Result<Counts, String> {
        self.line.lose();
        for _ in 0..100 {
            self.host.tick();
            if self.host.sizes() == (0, 0) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        if self.host.sizes() != (0, 0) {
            return Err(format!("sessions and opens stay: {:?}", self.host.sizes()));
        }
        empty(share).map_err(|error| format!("the share cannot be emptied: {error}"))?;
        let random = &mut self.session.random;
        let mut line = Connection::enter(&self.host, self.kind, random)?;
        let create = samples::body(|w| Create::of("after").request().encode(w));
        let created = line.call(random, Command::Create, &create)?;
        let file = CreateResponse::decode(&mut created.body())
            .map_err(|error| format!("no file after the storm: {:?}, {error}", created.header.status))?;
        let file = file.file_id;
        let data = values::bytes(random, 5000);
        let wrote = line.call(random, Command::Write, &samples::write(file, 7, &data))?;
        let read = line.call(random, Command::Read, &samples::read(file, 6000))?;
        let decoded =
            ReadResponse::decode(&mut read.body()).map(|(_, found)| found == [&[0; 7], &data[..]].concat());
        if wrote.header.status != NtStatus::SUCCESS || decoded != Ok(true) {
            return Err(format!("other content after the storm: {:?}", read.header.status));
        }
        let closed = line.call(random, Command::Close, &samples::body(|w| close_body(w, file)))?;
        if closed.header.status != NtStatus::SUCCESS {
            return Err(format!("no CLOSE after the storm: {:?}", closed.header.status));
        }
        line.lose();
        self.counts.add("valid clients served after a storm", 1);
        Ok(self.counts)
    }
}
