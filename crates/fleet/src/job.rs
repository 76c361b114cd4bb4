//! What a job is asked to do, as its catalog keeps it.

use serde::{Deserialize, Serialize};

/// Version of the catalog. Programs of another version refuse it.
const VERSION: u32 = 1;

/// The file `job` of a catalog. It holds no secrets: each worker has its own credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    version: u32,
    /// Where to copy from, as `submit` was told. Workers may know it under another name.
    pub source: String,
    /// Where to copy to.
    pub target: String,
}

impl JobFile {
    /// Makes the file of a new job.
    pub fn new(source: String, target: String) -> Self {
        Self {
            version: VERSION,
            source,
            target,
        }
    }

    /// Returns its bytes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("strings and numbers are JSON")
    }

    /// Parses the bytes; `None` if they are of another version or no job.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let job: Self = serde_json::from_slice(bytes).ok()?;
        (job.version == VERSION).then_some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_written_and_other_versions_are_refused() {
        let job = JobFile::new("/a".to_owned(), "smb://nas/b".to_owned());
        assert_eq!(JobFile::decode(&job.encode()), Some(job.clone()));
        let other = String::from_utf8(job.encode())
            .unwrap()
            .replace("\"version\": 1", "\"version\": 2");
        assert_eq!(JobFile::decode(other.as_bytes()), None);
    }
}
