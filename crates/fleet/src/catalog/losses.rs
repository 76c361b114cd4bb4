//! Attributes that the target could not keep.

use std::collections::BTreeMap;

use ropeway_vfs::Loss;
use serde::Serialize;

use crate::codec::{Reader, put_bytes, put_number};

/// Attributes that the target could not keep, with how often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Losses(pub BTreeMap<Loss, u64>);

impl Losses {
    /// Adds losses of one node.
    pub fn note(&mut self, losses: &[Loss]) {
        for loss in losses {
            *self.0.entry(*loss).or_default() += 1;
        }
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        for (loss, count) in &other.0 {
            let sum = self.0.entry(*loss).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Whether nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends them: a count, then each with its name.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_number(out, self.0.len() as u64);
        for (loss, count) in &self.0 {
            let name = serde_json::to_vec(loss).expect("a word is JSON");
            put_bytes(out, &name);
            put_number(out, *count);
        }
    }

    /// Reads what [`put`](Self::put) wrote; `None` if it is something else.
    pub(crate) fn get(reader: &mut Reader<'_>) -> Option<Self> {
        let mut losses = Self::default();
        for _ in 0..reader.count()? {
            let loss = serde_json::from_slice(reader.bytes()?).ok()?;
            let count = reader.number()?;
            // Each once.
            losses.0.insert(loss, count).is_none().then_some(())?;
        }
        Some(losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_as_written_and_added() {
        let mut losses = Losses::default();
        losses.note(&[Loss::Owner, Loss::Acl, Loss::Owner]);
        let mut bytes = Vec::new();
        losses.put(&mut bytes);
        assert_eq!(Losses::get(&mut Reader::new(&bytes)), Some(losses.clone()));
        for end in 0..bytes.len() {
            assert_eq!(Losses::get(&mut Reader::new(&bytes[..end])), None);
        }
        let twice = losses.clone();
        losses.add(&twice);
        assert_eq!(losses.0, [(Loss::Owner, 4), (Loss::Acl, 2)].into());
    }
}
