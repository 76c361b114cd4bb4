//! Which process a call of a store is made for.
//!
//! A mount knows the process that asks; a server does not. Stores that learn habits
//! (`ropeway_boost`) tell programs apart by it. The process belongs to the calling thread, so it
//! reaches a store through any number of others.

use std::cell::Cell;

thread_local! {
    static PROCESS: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Restores the process of the thread, after a panic too.
struct Restore(Option<u32>);

impl Drop for Restore {
    fn drop(&mut self) {
        PROCESS.set(self.0);
    }
}

/// Makes calls of stores on this thread for a process.
pub fn on_behalf_of<T>(process: u32, call: impl FnOnce() -> T) -> T {
    let _restore = Restore(PROCESS.replace(Some(process)));
    call()
}

/// Returns the process for which the present call of a store is made, if it is known.
pub fn process() -> Option<u32> {
    PROCESS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_that_of_the_innermost_call() {
        assert_eq!(process(), None);
        let inner = on_behalf_of(7, || on_behalf_of(8, process));
        assert_eq!((inner, process()), (Some(8), None));
        let panicked = std::panic::catch_unwind(|| on_behalf_of(9, || panic!("on purpose")));
        assert!(panicked.is_err() && process().is_none());
    }
}
