//! Listings, and what the server does that others do not.

use ropeway_smb_wire::info::{DirectoryClass, DirectoryRecord, DirectoryWriter, FileInfoClass, FsAttributes};
use ropeway_smb_wire::query_directory::QueryDirectoryRequest;
use ropeway_smb_wire::query_info::{InfoType, QueryInfoRequest};
use ropeway_smb_wire::{FileAttributes, FileId, FileTime, NtStatus, Text};

use super::{Answer, Server, encoded};

/// What is odd.
#[derive(Default)]
pub(crate) struct Quirks {
    /// Files that are there from the beginning, and their content.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
    /// Folders that are there from the beginning.
    pub(crate) folders: Vec<&'static str>,
    /// Reparse points, and their data.
    pub(crate) reparse: Vec<(&'static str, Vec<u8>)>,
    /// All times of the files.
    pub(crate) times: Option<u64>,
    /// Names that are listed beside those of files, in a folder.
    pub(crate) names: Vec<Vec<u16>>,
    pub(crate) names_in: &'static str,
    /// What is written over a record of the folder above: which one, where in it, which bytes.
    pub(crate) spoilt: Option<(usize, usize, &'static [u8])>,
    /// Most bytes of an answer to READ.
    pub(crate) read_max: Option<usize>,
    /// A READ from here on brings nothing, and no error.
    pub(crate) dry_from: Option<u64>,
    /// The EAs of each file, as they are sent.
    pub(crate) eas: Vec<(&'static str, Vec<u8>)>,
    /// The security descriptor of each file, as it is sent.
    pub(crate) descriptors: Vec<(&'static str, Vec<u8>)>,
    /// Of a file whose path ends so, half of each WRITE is stored.
    pub(crate) forgetful: Option<&'static str>,
}

impl Quirks {
    pub(super) fn forgets(&self, path: &str) -> bool {
        self.forgetful.is_some_and(|name| path.ends_with(name))
    }

    pub(super) fn cut<'a>(&self, data: &'a [u8], offset: u64) -> &'a [u8] {
        let end = match self.dry_from {
            Some(dry) if dry <= offset => 0,
            Some(dry) => data.len().min((dry - offset) as usize),
            None => data.len(),
        };
        &data[..end.min(self.read_max.unwrap_or(end))]
    }

    pub(super) fn attributes(&self) -> FsAttributes {
        match self.eas.is_empty() {
            true => FsAttributes::default(),
            false => FsAttributes::SUPPORTS_EXTENDED_ATTRIBUTES,
        }
    }

    fn ea_size(&self, path: &str) -> u32 {
        let found = self.eas.iter().find(|(name, _)| *name == path);
        found.map_or(0, |(_, bytes)| bytes.len() as u32)
    }

    /// The answer to a question for EAs or a descriptor, where the server has such.
    pub(super) fn query(&self, path: &str, request: &QueryInfoRequest<'_>) -> Option<Answer> {
        let is_ea = request.info_type == InfoType::File && request.info_class == FileInfoClass::FullEa as u8;
        let (list, none) = match request.info_type {
            _ if is_ea && !self.eas.is_empty() => (&self.eas, NtStatus::NO_EAS_ON_FILE),
            InfoType::Security if !self.descriptors.is_empty() => {
                (&self.descriptors, NtStatus::ACCESS_DENIED)
            }
            _ => return None,
        };
        let found = list.iter().find(|(name, _)| *name == path);
        Some(found.map_or(Err(none.into()), |(_, bytes)| Ok(bytes.clone())))
    }
}

impl Server {
    /// What is there from the beginning.
    pub(super) fn seed(&mut self) {
        for folder in self.quirks.folders.clone() {
            self.make(folder, FileAttributes::DIRECTORY);
        }
        for (path, content) in self.quirks.files.clone() {
            self.make(path, FileAttributes::ARCHIVE);
            let node = self.nodes.get_mut(path).unwrap();
            node.content = content;
            if let Some(time) = self.quirks.times.map(FileTime) {
                let basic = &mut node.basic;
                (basic.creation_time, basic.last_access_time) = (time, time);
                (basic.last_write_time, basic.change_time) = (time, time);
            }
        }
        for (path, data) in self.quirks.reparse.clone() {
            self.make(path, FileAttributes::ARCHIVE | FileAttributes::REPARSE_POINT);
            self.nodes.get_mut(path).unwrap().reparse = Some(data);
        }
    }

    pub(super) fn list(&mut self, file: FileId, request: &QueryDirectoryRequest) -> Answer {
        let open = self.opens.get_mut(&file.volatile).unwrap();
        if std::mem::replace(&mut open.listed, true) {
            return Err(NtStatus::NO_MORE_FILES.into());
        }
        let folder = open.path.clone();
        let class = DirectoryClass::from_u8(request.information_class).unwrap();
        let below = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}\\")
        };
        let mut list = encoded(|w| {
            let mut writer = DirectoryWriter::new(w, class, request.output_buffer_length as usize);
            for (path, node) in &self.nodes {
                let Some(name) = path
                    .strip_prefix(&below)
                    .filter(|name| !name.is_empty() && !name.contains('\\'))
                else {
                    continue;
                };
                // [MS-FSCC] 2.4.8: EaSize of a reparse point is its tag.
                let tag = node.reparse.as_ref().and_then(|data| data.first_chunk().copied());
                let record = DirectoryRecord {
                    name: Text::from(name),
                    creation_time: node.basic.creation_time,
                    last_access_time: node.basic.last_access_time,
                    last_write_time: node.basic.last_write_time,
                    change_time: node.basic.change_time,
                    end_of_file: node.content.len() as u64,
                    allocation_size: node.content.len() as u64,
                    attributes: node.basic.attributes,
                    ea_size: tag.map_or_else(|| self.quirks.ea_size(path), u32::from_le_bytes),
                    file_id: node.index.into(),
                    ..DirectoryRecord::default()
                };
                assert!(writer.push(w, &record), "the folders of these tests are small");
            }
            for name in self
                .quirks
                .names
                .iter()
                .filter(|_| folder == self.quirks.names_in)
            {
                let record = DirectoryRecord {
                    name: Text::from_units(name.clone()),
                    attributes: FileAttributes::ARCHIVE,
                    ..DirectoryRecord::default()
                };
                assert!(writer.push(w, &record), "the folders of these tests are small");
            }
        });
        if let Some((record, field, bytes)) = self.quirks.spoilt
            && folder == self.quirks.names_in
        {
            let next = |at: usize| at + u32::from_le_bytes(*list[at..].first_chunk().unwrap()) as usize;
            let at = field + (0..record).fold(0, |at, _| next(at));
            list[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Ok(list)
    }
}
