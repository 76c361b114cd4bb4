//! Finds or creates the file of a CREATE on a far server.
//!
//! That takes round trips, and much longer while the line is cut. So a thread does it, and the
//! request waits: its connection goes on with others, and with ECHO. The rest of a compound waits
//! with it.
//!
//! ```text
//! CREATE ──▶ no slot: a thread begins ──▶ pending ──▶ woken: slot is full ──▶ the file, or an error
//!                                            ▲  woken by the hub: slot is empty │
//!                                            └──────────────────────────────────┘
//! ```

use std::any::Any;
use std::sync::Arc;

use ropeway_smb_proto::server::hub::WaiterId;
use ropeway_smb_proto::server::rules::create::CreateIntent;
use ropeway_smb_wire::create::{AccessMask, CreateRequest, OplockLevel};
use ropeway_smb_wire::header::HEADER_LEN;
use ropeway_smb_wire::negotiate::Dialect;
use ropeway_smb_wire::{NtStatus, Reader};

use super::contexts::CreateContexts;
use super::find::{self, FindError, FoundFile};
use crate::ops::context::{Context, Execution, Outcome, Prepared};
use crate::ops::name;
use crate::share::Share;
use crate::state::SharedState;
use crate::state::cache_watch::CacheWatch;
use crate::state::mailbox::Message;
use crate::state::workers::JobClass;
use crate::token::Token;

/// What the thread has found, and its watch if the client wants to cache it.
type Watched = (FoundFile, Option<CacheWatch>);
type Found = Result<Watched, NtStatus>;

/// Returns the file once a thread has found or created it; until then the request waits. The file is
/// watched if the client wants to cache it and the far server reports changes.
pub(super) fn find(
    context: &mut Context<'_>,
    share: &Arc<Share>,
    token: &Arc<Token>,
    intent: &CreateIntent,
) -> Result<Watched, Outcome> {
    if let Some(slot) = &context.prepared {
        let Some(found) = slot.lock().take() else {
            // Something else has woken the request.
            return Err(Ok(Execution::Pending));
        };
        context.prepared = None;
        let found = found.downcast::<Found>();
        // Only this module prepares a CREATE.
        return found
            .map_or(Err(NtStatus::INTERNAL_ERROR), |found| *found)
            .map_err(Err);
    }
    let slot = Prepared::default();
    let finder = Finder {
        wake: Wake {
            shared: Arc::clone(context.shared),
            waiter: context.waiter,
            slot: Arc::clone(&slot),
        },
        share: Arc::clone(share),
        share_id: context.tree.map_or(0, |tree| tree.share),
        token: Arc::clone(token),
        message: context.message.to_vec(),
        dialect: context.protocol.dialect(),
    };
    context.prepared = Some(slot);
    let writing = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
    let changes = intent.creates() || intent.overwrites() || intent.access.intersects(writing);
    let class = match changes {
        true => JobClass::Changes,
        false => JobClass::Reads,
    };
    let workers = context.shared.workers_of(true, class);
    workers.run(Box::new(move || finder.run()));
    Err(Ok(Execution::Pending))
}

/// A search by a thread.
struct Finder {
    wake: Wake,
    share: Arc<Share>,
    share_id: u32,
    token: Arc<Token>,
    message: Vec<u8>,
    dialect: Dialect,
}

impl Finder {
    fn run(self) {
        let found: Found = self.found();
        *self.wake.slot.lock() = Some(Box::new(found));
    }

    /// The message was decoded before without an error.
    fn found(&self) -> Found {
        let mut body = Reader::at(&self.message, HEADER_LEN, "SMB2 CREATE Request");
        let request = CreateRequest::decode(&mut body).map_err(|_| NtStatus::INVALID_PARAMETER)?;
        let contexts = CreateContexts::read(&request, self.dialect)?;
        let intent = CreateIntent::new(&request)?;
        let target = name::parse(&request.name)?;
        let place = find::Place {
            share: &self.share,
            share_id: self.share_id,
            tunnel: &self.wake.shared.tunnel,
            now: self.wake.shared.uptime(),
        };
        let found = find::find(&place, &self.token, &request, &intent, &contexts, &target, None);
        let found = found.map_err(|missing| match missing {
            FindError::Status(status) => status,
            // Only for requests that may wait for a large folder.
            FindError::UnderWay | FindError::After(_) => NtStatus::INTERNAL_ERROR,
        })?;
        let wants_caching = request.oplock_level != OplockLevel::None;
        let watch = wants_caching.then(|| {
            let file = name::key_of(&found.stat, found.stream.as_ref());
            self.wake.shared.cache_watches.watch(&file, &*found.node)
        });
        Ok((found, watch.flatten()))
    }
}

/// Wakes the request when it is dropped, after a panic too.
struct Wake {
    shared: Arc<SharedState>,
    waiter: WaiterId,
    slot: Prepared,
}

impl Drop for Wake {
    fn drop(&mut self) {
        let failed: Found = Err(NtStatus::INTERNAL_ERROR);
        self.slot
            .lock()
            .get_or_insert_with(|| Box::new(failed) as Box<dyn Any + Send>);
        let retry = Message::Retry(self.waiter.request);
        // A lost connection needs no message.
        _ = self.shared.post(self.waiter.connection, retry);
    }
}
