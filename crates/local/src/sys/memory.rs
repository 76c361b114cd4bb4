//! Returns memory that the allocator keeps.

/// Returns freed memory to the system, if the C library can.
///
/// Without this, memory that a thread has freed may stay with the allocator: glibc keeps an arena for each.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the allocator's own locks and touches nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}
