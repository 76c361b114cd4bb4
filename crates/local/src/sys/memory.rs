//! Returns memory that the allocator keeps, and that a thread's stack has used.

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

/// Bytes below the frame of [`give_back_stack`] that stay: those of the system call's wrapper, and the red
/// zone. A signal handler does not run meanwhile, but before or after the call.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const STACK_KEPT: usize = 4 << 10;

/// Returns the pages of this thread's stack below the frames in use to the system: those of calls that have
/// returned. The next deep call gets zeroed pages. Call it from a thread that will wait for long; of the
/// main thread nothing is returned.
#[inline(never)]
pub fn give_back_stack() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let here = 0_u8;
        let Some(lowest) = lowest_of_stack() else { return };
        let page = rustix::param::page_size();
        let end = (&raw const here).addr().saturating_sub(STACK_KEPT) & !(page - 1);
        if lowest < end {
            // SAFETY: the range lies in this thread's own stack, and `STACK_KEPT` below the frame of this
            // function, so no frame, red zone or signal handler of this thread is in it; nobody else uses
            // the stack below the frames of its thread.
            let outcome = unsafe {
                rustix::mm::madvise(
                    std::ptr::with_exposed_provenance_mut(lowest),
                    end - lowest,
                    rustix::mm::Advice::LinuxDontNeed,
                )
            };
            // Without it the pages stay, which costs memory only.
            _ = outcome;
        }
    }
}

/// Returns the lowest address of this thread's stack above its guard; `None` for the main thread, whose
/// stack grows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn lowest_of_stack() -> Option<usize> {
    if rustix::thread::gettid() == rustix::process::getpid() {
        return None;
    }
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut lowest = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: pthread_getattr_np(3) initializes the attributes of the calling thread if it returns zero;
    // then they are read, and destroyed once.
    let outcome = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let outcome = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        outcome
    };
    let guard = 64 << 10;
    // glibc counts the guard in or out, depending on its version; leaving its size out is right for both.
    (outcome == 0 && size > 2 * guard).then(|| lowest.addr() + guard)
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Uses a part of the stack, and returns a sum over it.
    #[inline(never)]
    fn deep(depth: usize) -> usize {
        let filled = std::hint::black_box([depth; 512]);
        match depth {
            0 => filled.iter().sum(),
            _ => filled.iter().sum::<usize>() + deep(depth - 1),
        }
    }

    /// Returns the resident bytes of the mapping that an address is in.
    fn resident_at(address: usize) -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process has maps");
        let mut found = false;
        for line in maps.lines() {
            let range = line.split_whitespace().next().and_then(|range| {
                let (from, to) = range.split_once('-')?;
                let parse = |text| usize::from_str_radix(text, 16).ok();
                Some(parse(from)?..parse(to)?)
            });
            match range {
                Some(range) => found = range.contains(&address),
                None if found && line.starts_with("Rss:") => {
                    let kib = line
                        .split_whitespace()
                        .nth(1)
                        .and_then(|kib| kib.parse::<usize>().ok());
                    return kib.expect("a number of KiB") << 10;
                }
                None => {}
            }
        }
        panic!("the address is in no mapping");
    }

    #[test]
    fn the_stack_of_calls_that_returned_is_given_back_and_can_be_used_again() {
        let thread = std::thread::Builder::new().stack_size(2 << 20);
        let handle = thread.spawn(|| {
            let here = std::hint::black_box([7_u8; 64]);
            let address = here.as_ptr().addr();
            for _ in 0..3 {
                let expected: usize = (0..=200).map(|depth| depth * 512).sum();
                assert_eq!(deep(200), expected);
                assert!(resident_at(address) > 600 << 10);
                give_back_stack();
                assert!(resident_at(address) < 400 << 10, "{}", resident_at(address));
                assert_eq!(std::hint::black_box(here), [7; 64]);
            }
        });
        handle.unwrap().join().unwrap();
    }

    #[test]
    fn a_small_stack_and_the_main_thread_are_left_alone() {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(give_back_stack).unwrap().join().unwrap();
    }
}
