//! What is asked of the reading process, and what it answers. Pure.
//!
//! | bytes of a question | what | bytes of an answer | what |
//! |---|---|---|---|
//! | 1 | 1: what is in memory, 2: read | 4 | 0, or an errno |
//! | 8, 8, 8 | offset, length, step | 4 | whether the kernel tells |
//! | 2 | length of the path | 8 | one bit for each step that is in memory |
//! | rest | path | | |

use ropeway_vfs::RelPath;
use rustix::io::Errno;

/// Bytes of a question before its path, and of an answer.
pub(super) const HEAD_BYTES: usize = 27;
pub(super) const ANSWER_BYTES: usize = 16;
/// Steps of one question, at most.
pub(super) const STEPS_MAX: u64 = 64;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Kept,
    Read,
}

/// A question about a range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) what: What,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) step: u64,
    pub(super) path: RelPath,
}

/// An answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) errno: i32,
    pub(super) is_known: bool,
    pub(super) kept: u64,
}

impl Question {
    /// Returns the question as bytes; `None` if its path or range is too long.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let path = self.path.as_bytes();
        let path_len = u16::try_from(path.len()).ok()?;
        if self.step == 0 || self.length.div_ceil(self.step) > STEPS_MAX {
            return None;
        }
        let what = match self.what {
            What::Kept => 1,
            What::Read => 2,
        };
        let mut bytes = vec![what];
        for number in [self.offset, self.length, self.step] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&path_len.to_le_bytes());
        bytes.extend_from_slice(path);
        Some(bytes)
    }

    /// Returns the bytes of the path behind a head.
    pub(super) fn path_bytes(head: &[u8; HEAD_BYTES]) -> usize {
        usize::from(u16::from_le_bytes([head[25], head[26]]))
    }

    /// Returns the question with this head and path, if it is one.
    pub(super) fn decode(head: &[u8; HEAD_BYTES], path: &[u8]) -> Option<Self> {
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        let question = Self {
            what: match head[0] {
                1 => What::Kept,
                2 => What::Read,
                _ => return None,
            },
            offset: number(1),
            length: number(9),
            step: number(17),
            path: RelPath::parse(path)?,
        };
        question.offset.checked_add(question.length)?;
        let is_sound = question.step > 0 && question.length.div_ceil(question.step) <= STEPS_MAX;
        is_sound.then_some(question)
    }
}

impl Answer {
    pub(super) fn encode(self) -> [u8; ANSWER_BYTES] {
        let mut bytes = [0; ANSWER_BYTES];
        bytes[..4].copy_from_slice(&self.errno.to_le_bytes());
        bytes[4..8].copy_from_slice(&u32::from(self.is_known).to_le_bytes());
        bytes[8..].copy_from_slice(&self.kept.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; ANSWER_BYTES]) -> Self {
        let part = |at: usize| bytes[at..at + 4].try_into().unwrap_or_default();
        Self {
            errno: i32::from_le_bytes(part(0)),
            is_known: u32::from_le_bytes(part(4)) != 0,
            kept: u64::from_le_bytes(bytes[8..].try_into().unwrap_or_default()),
        }
    }

    /// Returns the answer to a question that failed.
    pub(super) fn failed(error: &std::io::Error) -> Self {
        Self {
            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn question(path: &str, length: u64) -> Question {
        Question {
            what: What::Read,
            offset: 7 << 40,
            length,
            step: 65_536,
            path: RelPath::parse(path.as_bytes()).unwrap(),
        }
    }

    fn decode(bytes: &[u8]) -> Option<Question> {
        let (head, path) = bytes.split_first_chunk()?;
        assert_eq!(Question::path_bytes(head), path.len());
        Question::decode(head, path)
    }

    #[test]
    fn a_question_arrives_as_it_was_sent_and_one_too_long_is_not_sent() {
        for what in [What::Read, What::Kept] {
            let sent = Question {
                what,
                ..question("a folder/a file", 1 << 20)
            };
            assert_eq!(decode(&sent.encode().unwrap()), Some(sent));
        }
        assert_eq!(question("f", 65 * 65_536).encode(), None);
        let without_step = Question {
            step: 0,
            ..question("f", 1)
        };
        assert_eq!(without_step.encode(), None);
    }

    proptest! {
        #[test]
        fn any_head_is_a_question_or_not(head in any::<[u8; HEAD_BYTES]>(), path in any::<Vec<u8>>()) {
            if let Some(question) = Question::decode(&head, &path) {
                prop_assert!(question.length.div_ceil(question.step) <= STEPS_MAX);
            }
        }

        #[test]
        fn an_answer_arrives_as_it_was_sent(errno: i32, is_known: bool, kept: u64) {
            let answer = Answer { errno, is_known, kept };
            prop_assert_eq!(Answer::decode(&answer.encode()), answer);
        }
    }
}
