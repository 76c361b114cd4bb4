//! Combinations of flags that cannot be used together.

use ropeway_copy::Durability;
use ropeway_smb_client::Encryption;
use ropeway_smb_wire::negotiate::Dialect;

use super::{CopyArgs, ServeArgs, TransferArgs};
use crate::failure::Failure;

impl TransferArgs {
    /// Checks the flags of a copy or mirror; `moves`: the source is removed.
    ///
    /// # Errors
    /// Two flags cannot be used together.
    pub(crate) fn check(&self, moves: bool) -> Result<(), Failure> {
        let existing = &self.existing;
        let contradictions = [
            (
                existing.backup.is_some() && existing.backup_dir.is_some(),
                "--backup",
                "--backup-dir",
            ),
            (
                existing.update && existing.ignore_existing,
                "--update",
                "--ignore-existing",
            ),
            (
                existing.force && existing.ignore_existing,
                "--force",
                "--ignore-existing",
            ),
            (existing.force && existing.update, "--force", "--update"),
            (self.watch && self.dry_run, "--watch", "--dry-run"),
            (self.verify && self.dry_run, "--verify", "--dry-run"),
            (
                self.durability == Durability::None && self.verify,
                "--durability none",
                "--verify",
            ),
            (
                self.durability == Durability::None && moves,
                "--durability none",
                "--move",
            ),
            (self.output.quiet && self.output.verbose, "--quiet", "--verbose"),
        ];
        if self.watch && moves {
            return Err(Failure::usage(
                "--move and --watch cannot be used together: later changes would not be moved",
            )
            .hint("use --watch without --move, or run copy --move repeatedly, e.g. by a timer"));
        }
        match contradictions.into_iter().find(|(both, ..)| *both) {
            Some((_, one, two)) => Err(Failure::usage(format!("{one} and {two} cannot be used together"))
                .hint("leave out one of them; `--flag=false` overrides a switch of the configuration")),
            None => Ok(()),
        }
    }
}

impl CopyArgs {
    /// Checks the flags of `copy --write-device`.
    ///
    /// # Errors
    /// A flag does not apply to devices.
    pub(crate) fn check_device(&self) -> Result<(), Failure> {
        let (transfer, existing) = (&self.transfer, &self.transfer.existing);
        let contradictions = [
            (self.move_source, "--move"),
            (transfer.watch, "--watch"),
            (transfer.eject, "--eject"),
            (transfer.manifest.is_some(), "--manifest"),
            (transfer.hash.is_some(), "--hash"),
            (existing.backup.is_some(), "--backup"),
            (existing.backup_dir.is_some(), "--backup-dir"),
            (existing.update, "--update"),
            (existing.ignore_existing, "--ignore-existing"),
            (transfer.speed.bwlimit.is_some(), "--bwlimit"),
            (transfer.output.trace.is_some(), "--trace"),
            (transfer.durability == Durability::None, "--durability none"),
            (transfer.verify && transfer.dry_run, "--verify with --dry-run"),
        ];
        match contradictions.into_iter().find(|(given, _)| *given) {
            Some((_, flag)) => Err(
                Failure::usage(format!("--write-device does not work with {flag}"))
                    .hint("leave out one of them"),
            ),
            None => Ok(()),
        }
    }
}

impl ServeArgs {
    /// Checks dialects and encryption.
    ///
    /// # Errors
    /// Two flags cannot be used together.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let protocol = &self.protocol;
        let newest = protocol.max_dialect.unwrap_or(Dialect::Smb311);
        if protocol.min_dialect.is_some_and(|oldest| oldest > newest) {
            return Err(
                Failure::usage("--min-dialect is newer than --max-dialect").hint("leave out one of them")
            );
        }
        if protocol.encrypt != Encryption::Required {
            return Ok(());
        }
        if newest < Dialect::Smb300 {
            return Err(Failure::usage("there is no encryption below SMB 3.0")
                .hint("leave out --encrypt required or --max-dialect"));
        }
        if self.login.anonymous || self.login.guest {
            return Err(Failure::usage(
                "anonymous and guest sessions have no key, so they cannot be encrypted",
            )
            .hint("leave out --encrypt required, or --anonymous and --guest"));
        }
        Ok(())
    }
}
