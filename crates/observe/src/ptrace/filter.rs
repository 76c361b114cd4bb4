//! A seccomp filter that stops a program at the calls of the catalogue only.
//!
//! ```text
//!   another architecture ──> allow
//!   number of the catalogue ──> stop for the tracer
//!   others ──> allow
//! ```

use crate::catalogue::Catalogue;
use crate::sys::ptrace::ARCHITECTURE;
use crate::sys::spawn::FilterInstruction;

/// Instructions of classic BPF (linux/bpf_common.h): load a word, compare with a constant, return.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
/// Verdicts (linux/seccomp.h).
const ALLOW: u32 = 0x7fff_0000;
const TRACE: u32 = 0x7ff0_0000;

fn instruction(code: u16, constant: u32, if_true: u8, if_false: u8) -> FilterInstruction {
    FilterInstruction {
        code,
        jt: if_true,
        jf: if_false,
        k: constant,
    }
}

/// Returns the filter.
pub(crate) fn filter(catalogue: &Catalogue) -> Vec<FilterInstruction> {
    let numbers: Vec<u32> = catalogue.entries().map(|(number, _)| number).collect();
    let count = u8::try_from(numbers.len()).expect("the catalogue has fewer than 256 calls");
    let mut filter = vec![
        instruction(LOAD, ARCH, 0, 0),
        // To the end of the comparisons, behind the load.
        instruction(JUMP_IF_EQUAL, ARCHITECTURE, 0, count + 1),
        instruction(LOAD, NUMBER, 0, 0),
    ];
    for (number, left) in numbers.into_iter().zip((0..count).rev()) {
        // Over the other comparisons and the verdict that allows.
        filter.push(instruction(JUMP_IF_EQUAL, number, left + 1, 0));
    }
    filter.push(instruction(RETURN, ALLOW, 0, 0));
    filter.push(instruction(RETURN, TRACE, 0, 0));
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a filter, as the kernel does.
    fn verdict(filter: &[FilterInstruction], architecture: u32, number: u32) -> u32 {
        let (mut at, mut register) = (0, 0);
        loop {
            let step = &filter[at];
            at += 1;
            match step.code {
                LOAD => register = if step.k == ARCH { architecture } else { number },
                JUMP_IF_EQUAL => at += usize::from(if register == step.k { step.jt } else { step.jf }),
                RETURN => return step.k,
                code => panic!("{code}"),
            }
        }
    }

    #[test]
    fn exactly_the_catalogue_stops() {
        let catalogue = Catalogue::of_this_machine();
        let filter = filter(&catalogue);
        for number in 0..1100 {
            let expected = if catalogue.entry(number).is_some() {
                TRACE
            } else {
                ALLOW
            };
            assert_eq!(verdict(&filter, ARCHITECTURE, number), expected, "{number}");
            assert_eq!(verdict(&filter, 3, number), ALLOW);
        }
    }
}
