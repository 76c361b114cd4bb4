//! What a stream must be like.

use std::fmt;

use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};

/// A setting of a stream that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the setting, as NATS has it.
    pub setting: &'static str,
    /// What it is.
    pub found: String,
    /// What it must be.
    pub wanted: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} is {}, and must be {}",
            self.setting, self.found, self.wanted
        )
    }
}

/// Returns the settings of a new stream for the tasks of a job.
pub(crate) fn stream(name: &str, subjects: &str, replicas: usize) -> Config {
    Config {
        name: name.to_owned(),
        subjects: vec![subjects.to_owned()],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        // A task that is offered again while its message is there changes nothing.
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_messages_per_subject: 1,
        num_replicas: replicas.max(1),
        ..Config::default()
    }
}

/// Compares the settings of a stream that exists with those wanted. Somebody else may have made it.
pub fn check_stream(found: &Config, wanted: &Config) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut compare = |setting, found: String, wanted: String, is_good: bool| {
        if !is_good {
            faults.push(Fault {
                setting,
                found,
                wanted,
            });
        }
    };
    macro_rules! equal {
        ($($field:ident),*) => {$(
            let (is, must) = (&found.$field, &wanted.$field);
            compare(stringify!($field), format!("{is:?}"), format!("{must:?}"), is == must);
        )*};
    }
    equal!(
        storage,
        retention,
        discard,
        discard_new_per_subject,
        max_messages_per_subject,
        subjects
    );
    let (is, must) = (found.num_replicas, wanted.num_replicas);
    compare(
        "num_replicas",
        is.to_string(),
        format!("at least {must}"),
        is >= must,
    );
    // Messages that are dropped by age or number would only come back one by one.
    compare(
        "max_age",
        format!("{:?}", found.max_age),
        "0".to_owned(),
        found.max_age.is_zero(),
    );
    let limits = [("max_msgs", found.max_messages), ("max_bytes", found.max_bytes)];
    for (setting, limit) in limits {
        compare(setting, limit.to_string(), "-1 (none)".to_owned(), limit <= 0);
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_would_lose_tasks_is_named() {
        let wanted = stream("S", "a.>", 3);
        assert_eq!(check_stream(&wanted, &wanted), []);
        let named = |change: fn(&mut Config)| {
            let mut found = wanted.clone();
            change(&mut found);
            let faults = check_stream(&found, &wanted);
            assert_eq!(faults.len(), 1, "{faults:?}");
            faults[0].setting
        };
        assert_eq!(named(|found| found.storage = StorageType::Memory), "storage");
        assert_eq!(
            named(|found| found.retention = RetentionPolicy::Limits),
            "retention"
        );
        assert_eq!(named(|found| found.num_replicas = 1), "num_replicas");
        assert_eq!(
            named(|found| found.max_age = std::time::Duration::from_secs(60)),
            "max_age"
        );
        assert_eq!(named(|found| found.max_messages = 100), "max_msgs");
        assert_eq!(named(|found| found.subjects = vec!["b.>".to_owned()]), "subjects");
        let more = Config {
            num_replicas: 5,
            ..wanted.clone()
        };
        assert_eq!(check_stream(&more, &wanted), []);
    }
}
