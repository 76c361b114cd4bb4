//! Belady's optimum: the block that is needed last leaves, or the newcomer itself.

use std::collections::{BTreeSet, HashMap};

use crate::replay::Trace;

/// Returns the hits of the best possible cache without prefetching.
pub fn belady(trace: &Trace, capacity: usize) -> u64 {
    // For each request, the number of the next one for its block.
    let mut next = vec![usize::MAX; trace.blocks.len()];
    let mut seen = vec![usize::MAX; trace.footprint];
    for (at, block) in trace.blocks.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut seen[*block as usize], at);
    }
    let mut cached: HashMap<u32, usize> = HashMap::new();
    let mut order: BTreeSet<(usize, u32)> = BTreeSet::new();
    let mut hits = 0;
    for (at, block) in trace.blocks.iter().enumerate() {
        if let Some(due) = cached.insert(*block, next[at]) {
            hits += 1;
            order.remove(&(due, *block));
        }
        order.insert((next[at], *block));
        if cached.len() > capacity
            && let Some((_, last)) = order.pop_last()
        {
            cached.remove(&last);
        }
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_knows_the_future() {
        let trace = Trace::new(vec![1, 2, 3, 1, 2, 3, 1, 2, 3]);
        assert_eq!(belady(&trace, 2), 4, "LRU has none");
        assert_eq!(belady(&trace, 3), 6);
    }
}
