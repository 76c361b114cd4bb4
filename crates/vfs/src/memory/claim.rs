//! Claims of a memory tree: held while the object lives.

use std::sync::Arc;

use super::Shared;
use super::state::State;
use crate::{Claim, ClaimKind, Create, Error, ErrorKind, Op, OpenOptions, Pending, RelPath, Result};

pub(super) struct MemoryClaim {
    shared: Arc<Shared>,
    index: u64,
    path: RelPath,
}

impl MemoryClaim {
    pub(super) fn take(
        state: &mut State,
        shared: &Arc<Shared>,
        path: &RelPath,
        create: bool,
    ) -> Result<MemoryClaim> {
        let create = if create { Create::IfMissing } else { Create::No };
        let index = state.open(shared, path, OpenOptions::write(create, Default::default()))?;
        if !state.claimed.insert(index) {
            state.close(index);
            return Err(Error::new(Op::Open, path, ErrorKind::Busy));
        }
        Ok(Self {
            shared: Arc::clone(shared),
            index,
            path: path.clone(),
        })
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.claimed.remove(&self.index);
        state.close(self.index);
    }
}

impl Claim for MemoryClaim {
    fn kind(&self) -> ClaimKind {
        ClaimKind::Memory
    }

    fn read(&self, max: usize) -> Pending<'_, Result<Vec<u8>>> {
        let state = self.shared.lock();
        let mut bytes = Vec::new();
        if let Some(content) = state.content(self.index) {
            bytes.resize(max.min(usize::try_from(content.size()).unwrap_or(max)), 0);
            content.read(0, &mut bytes);
        }
        Box::pin(std::future::ready(Ok(bytes)))
    }

    fn append<'a>(&'a self, text: &'a [u8]) -> Pending<'a, Result<()>> {
        let mut state = self.shared.lock();
        let end = state.content(self.index).map_or(0, |content| content.size());
        let written = state.write(&self.shared, self.index, &self.path, end, text);
        Box::pin(std::future::ready(written))
    }

    fn remove(self: Box<Self>) -> Pending<'static, Result<()>> {
        let removed = self.shared.lock().remove(&self.shared, &self.path, false);
        Box::pin(std::future::ready(removed))
    }
}
