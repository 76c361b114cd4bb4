//! Opens by path, for renaming and deleting folders.

use ropeway_smb_wire::Text;
use ropeway_smb_wire::upcase::{equal, fold};

use super::Hub;
use super::ids::OpenId;
use super::table::OpenInfo;

impl Hub {
    /// Returns the opens beneath a folder, without those of the folder itself. While there are any,
    /// it cannot be renamed (`STATUS_ACCESS_DENIED`: smb2.rename.rename_dir_openfile). Opens
    /// without a connection count.
    pub fn opens_beneath<'a>(
        &'a self,
        share_id: u32,
        folder: &Text,
    ) -> impl Iterator<Item = &'a OpenInfo> + use<'a> {
        let opens = self.tables.beneath(share_id, &fold(folder));
        opens.filter_map(|open| self.info(open))
    }

    /// Applies a rename to the opens of a file or folder, to those beneath it, and to their
    /// watches. Opens by another hard link are not affected. Returns the affected opens.
    pub fn renamed(&mut self, share_id: u32, old: &Text, new: &Text) -> Vec<OpenId> {
        let folded = fold(old);
        let own = self.tables.paths.get(&(share_id, folded.clone()));
        let mut opens: Vec<OpenId> = own.into_iter().flatten().copied().collect();
        if !old.is_empty() {
            opens.extend(self.tables.beneath(share_id, &folded));
        }
        for open in opens.iter().copied() {
            let Some(info) = self.info(open) else {
                continue;
            };
            let rest = info.path.units().get(old.units().len()..).unwrap_or_default();
            let path = Text::from_units([new.units(), rest].concat());
            let (base, before) = (info.file.base(), info.path.clone());
            if let Some(base) = self.tables.bases.get_mut(&base) {
                let streams = base
                    .streams
                    .iter_mut()
                    .filter_map(|stream| stream.pending.as_mut());
                for deletion in base.pending.iter_mut().chain(streams) {
                    if deletion.share_id == share_id && equal(&deletion.path, &before) {
                        deletion.path = path.clone();
                    }
                }
            }
            self.watches.set_path(open, &path);
            self.tables.set_path(open, path);
            self.open_changed(open);
        }
        opens
    }
}
