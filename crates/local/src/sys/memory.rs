//! Memory that the allocator keeps.

/// Gives the system back what was freed and is kept for later; of a C library that cannot, nothing.
///
/// Threads that had much at once leave it with the allocator otherwise: glibc keeps an arena for each.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the allocator's own locks and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
