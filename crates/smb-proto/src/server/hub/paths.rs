//! Opens by path: what renaming and deleting folders has to know.

use super::Hub;
use super::ids::OpenId;
use super::table::OpenInfo;
use ropeway_smb_wire::Text;
use ropeway_smb_wire::upcase::{equal, fold};

impl Hub {
    /// Opens beneath a folder, itself excluded: while there are any, it cannot be renamed (`STATUS_ACCESS_DENIED`:
    /// smb2.rename.rename_dir_openfile). Opens whose client is away count.
    pub fn opens_beneath<'a>(
        &'a self,
        share_id: u32,
        folder: &Text,
    ) -> impl Iterator<Item = &'a OpenInfo> + use<'a> {
        let opens = self.tables.beneath(share_id, &fold(folder));
        opens.filter_map(|open| self.info(open))
    }

    /// A file or folder is called otherwise now: so are its opens, those beneath it, and what is watched by them. Opens
    /// by another of its hard links are not concerned. Says which opens are.
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
                for doomed in base.pending.iter_mut().chain(streams) {
                    if doomed.share_id == share_id && equal(&doomed.path, &before) {
                        doomed.path = path.clone();
                    }
                }
            }
            self.watches.set_path(open, &path);
            self.tables.set_path(open, path);
        }
        opens
    }
}
