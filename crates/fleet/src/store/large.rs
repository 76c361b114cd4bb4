//! Large files, which several workers write at once.

use ropeway_vfs::{CacheMode, Create, ErrorKind, OpenOptions, RelPath};

use super::Store;
use crate::claim::ClaimId;
use crate::error::{Error, Result};
use crate::files::name;
use crate::parts::LargeId;

impl Store {
    /// Returns where a large file lies until it gets its name.
    pub fn large(&self, file: LargeId) -> RelPath {
        self.path("large", file)
    }

    /// Returns where a claim prepares a large file: only the last claim can rename it from there.
    pub fn prepared(&self, claim: ClaimId, file: LargeId) -> RelPath {
        self.own_folder(claim).join(&name(&file.to_string()))
    }

    /// Makes a large file, as one hole, for those who write its parts. One that is there stays.
    ///
    /// # Errors
    /// [`Error::Claim`] if the claim is over; or the file cannot be made.
    pub async fn make_large(&self, claim: ClaimId, file: LargeId, size: u64) -> Result<()> {
        let (folder, own) = (self.folder("large"), name(&file.to_string()));
        if self.files.exists(&folder, &own).await.map_err(Error::target)? {
            return Ok(());
        }
        let made = async {
            let options = OpenOptions::write(Create::Truncate, CacheMode::Leave);
            let made = self.tree().open(&self.prepared(claim, file), options).await?;
            made.set_len(size).await?;
            made.sync(false).await
        };
        if let Err(error) = made.await {
            return Err(self.lost_or(claim, error).await);
        }
        let from = self.prepared(claim, file);
        match self.tree().rename(&from, &self.large(file), false).await {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::AlreadyExists => {
                self.files.remove(&from).await.map_err(Error::target)?;
            }
            Err(error) => return Err(self.lost_or(claim, error).await),
        }
        self.tree().sync_dir(&folder).await.map_err(Error::target)
    }

    /// Removes a large file that failed, or whose copy got its name.
    ///
    /// # Errors
    /// It cannot be removed.
    pub async fn drop_large(&self, file: LargeId) -> Result<()> {
        self.files.remove(&self.large(file)).await.map_err(Error::target)
    }
}
