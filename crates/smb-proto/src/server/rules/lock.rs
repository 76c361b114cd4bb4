//! Rules of LOCK ([MS-SMB2] 3.3.5.14). Conflicts of locks are decided by the [`hub`](crate::server::hub).

use ropeway_smb_wire::negotiate::Dialect;

/// Whether the server verifies the sequence number of a lock, so that a request that is repeated on another channel is not
/// executed twice: always in SMB 3, for durable opens in 2.1, never in 2.0.2.
pub fn verifies_sequence(dialect: Dialect, is_durable: bool) -> bool {
    dialect >= Dialect::Smb300 || (dialect == Dialect::Smb210 && is_durable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_count_where_channels_may_be_lost() {
        for (dialect, of_durable, of_others) in [
            (Dialect::Smb202, false, false),
            (Dialect::Smb210, true, false),
            (Dialect::Smb300, true, true),
            (Dialect::Smb311, true, true),
        ] {
            assert_eq!(verifies_sequence(dialect, true), of_durable, "{dialect:?}");
            assert_eq!(verifies_sequence(dialect, false), of_others, "{dialect:?}");
        }
    }
}
