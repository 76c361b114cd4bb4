//! A store whose writes are acknowledged once they are in a journal on a near disk:
//! [`WriteBackStore`].
//!
//! ```text
//! WriteBackStore ─┬─ the far store: any Store      names, opens, everything but content, unchanged
//! WriteBackNode   ├─ files ─── File                one for each far file in use
//!                 │              ├─ backlog        what the far file lacks; pure
//!                 │              └─ log            its journal: parts, records, seals
//!                 ├─ shared      writes into the journal; what must wait for the backlog
//!                 ├─ queue, drain    workers bring backlogs to the far files, in rounds
//!                 ├─ conflict    saves a backlog under another name
//!                 ├─ disk        the near disk
//!                 └─ under_way   notes that a round is not at its end, once a second
//! SessionFile     the sessions at far servers, for the process that comes next
//! Journal ── DIR/write-back/SHARE: its key, its lock, whose it is
//! ```
//!
//! **Acknowledged** means: a write, a new length, and times and attributes set on a file with a
//! backlog are handed to the kernel, so they survive the end of the process. `sync` returns when
//! they are on the near disk. Reads, attributes and listings show them at once.
//!
//! **The far file** gets them in the background, in the order in which they were written, as far as
//! they were not written over. A record is released once the far server has flushed what it says.
//! After a crash the journal is replayed; a round that is done twice writes the same bytes.
//!
//! **Conflicts.** The journal remembers the far file's version when the backlog begins, and after
//! each round. If others have changed, replaced or removed the file since, theirs stays. Ours gets
//! another name beside it. Nodes that were open then refuse further writes.
//!
//! **What must not find a backlog** (a rename, a link, a copy on the server, a lock, a security
//! descriptor, a stream) first brings the file's backlog to the far server. A removal does not: it
//! ends the backlog.
//!
//! **A near disk that fails or is full** sends new writes to the far file directly, after its
//! backlog.

mod backlog;
mod conflict;
mod disk;
mod drain;
mod files;
mod journal;
mod log;
mod names;
mod node;
mod part;
mod queue;
mod record;
mod recover;
mod seal;
mod sessions;
mod shared;
pub mod simulation;
mod status;
mod store;
mod under_way;

pub use disk::{Disk, FolderDisk};
pub use journal::{Journal, JournalError, Left};
pub use sessions::SessionFile;
pub use shared::WriteBackOptions;
pub use status::Status;
pub use store::WriteBackStore;
