//! The numbers of the information classes.

/// Makes an enum of one-byte numbers and the way back.
macro_rules! classes {
    ($(#[$outer:meta])* pub enum $name:ident { $($(#[$inner:meta])* $class:ident = $number:expr,)* }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum $name { $($(#[$inner])* $class = $number,)* }

        impl $name {
            /// From the number on the wire; `None` for one not listed here.
            pub const fn from_u8(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$class),)*
                    _ => None,
                }
            }

            /// The number on the wire.
            pub const fn to_u8(self) -> u8 {
                self as u8
            }
        }
    };
}

classes! {
    /// Information about a file ([MS-FSCC] 2.4): `FileInfoClass` of QUERY_INFO and SET_INFO with `SMB2_0_INFO_FILE`,
    /// and `FileInformationClass` of QUERY_DIRECTORY.
    pub enum FileInfoClass {
        /// `FileDirectoryInformation`, of a directory's records.
        Directory = 1,
        /// `FileFullDirectoryInformation`, of a directory's records.
        FullDirectory = 2,
        /// `FileBothDirectoryInformation`, of a directory's records.
        BothDirectory = 3,
        /// `FileBasicInformation`.
        Basic = 4,
        /// `FileStandardInformation`.
        Standard = 5,
        /// `FileInternalInformation`.
        Internal = 6,
        /// `FileEaInformation`.
        Ea = 7,
        /// `FileAccessInformation`.
        Access = 8,
        /// `FileNameInformation`.
        Name = 9,
        /// `FileRenameInformation`.
        Rename = 10,
        /// `FileLinkInformation`.
        Link = 11,
        /// `FileNamesInformation`, of a directory's records.
        Names = 12,
        /// `FileDispositionInformation`.
        Disposition = 13,
        /// `FilePositionInformation`.
        Position = 14,
        /// `FileFullEaInformation`.
        FullEa = 15,
        /// `FileModeInformation`.
        Mode = 16,
        /// `FileAlignmentInformation`.
        Alignment = 17,
        /// `FileAllInformation`.
        All = 18,
        /// `FileAllocationInformation`.
        Allocation = 19,
        /// `FileEndOfFileInformation`.
        EndOfFile = 20,
        /// `FileAlternateNameInformation`: the 8.3 name; laid out as `FileNameInformation`.
        AlternateName = 21,
        /// `FileStreamInformation`.
        Stream = 22,
        /// `FilePipeInformation`.
        Pipe = 23,
        /// `FilePipeLocalInformation`.
        PipeLocal = 24,
        /// `FilePipeRemoteInformation`.
        PipeRemote = 25,
        /// `FileCompressionInformation`.
        Compression = 28,
        /// `FileObjectIdInformation`.
        ObjectId = 29,
        /// `FileReparsePointInformation`.
        ReparsePoint = 33,
        /// `FileNetworkOpenInformation`.
        NetworkOpen = 34,
        /// `FileAttributeTagInformation`.
        AttributeTag = 35,
        /// `FileIdBothDirectoryInformation`, of a directory's records.
        IdBothDirectory = 37,
        /// `FileIdFullDirectoryInformation`, of a directory's records.
        IdFullDirectory = 38,
        /// `FileValidDataLengthInformation`.
        ValidDataLength = 39,
        /// `FileShortNameInformation`.
        ShortName = 40,
        /// `FileNormalizedNameInformation`.
        NormalizedName = 48,
        /// `FileIdInformation`.
        Id = 59,
        /// `FileIdExtdDirectoryInformation`, of a directory's records.
        IdExtdDirectory = 60,
        /// `FileDispositionInformationEx`.
        DispositionEx = 64,
        /// `FileRenameInformationEx`.
        RenameEx = 65,
    }
}

classes! {
    /// Information about a volume ([MS-FSCC] 2.5): `FileInfoClass` of QUERY_INFO and SET_INFO with
    /// `SMB2_0_INFO_FILESYSTEM`.
    pub enum FsInfoClass {
        /// `FileFsVolumeInformation`.
        Volume = 1,
        /// `FileFsLabelInformation`.
        Label = 2,
        /// `FileFsSizeInformation`.
        Size = 3,
        /// `FileFsDeviceInformation`.
        Device = 4,
        /// `FileFsAttributeInformation`.
        Attribute = 5,
        /// `FileFsControlInformation`.
        Control = 6,
        /// `FileFsFullSizeInformation`.
        FullSize = 7,
        /// `FileFsObjectIdInformation`.
        ObjectId = 8,
        /// `FileFsDriverPathInformation`.
        DriverPath = 9,
        /// `FileFsVolumeFlagsInformation`.
        VolumeFlags = 10,
        /// `FileFsSectorSizeInformation`.
        SectorSize = 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let files: Vec<_> = (0..=u8::MAX).filter_map(FileInfoClass::from_u8).collect();
        assert_eq!(files.len(), 39);
        assert!(
            files
                .iter()
                .all(|class| FileInfoClass::from_u8(class.to_u8()) == Some(*class))
        );
        assert_eq!(FileInfoClass::from_u8(37), Some(FileInfoClass::IdBothDirectory));
        assert_eq!(FsInfoClass::from_u8(11), Some(FsInfoClass::SectorSize));
        assert_eq!(FsInfoClass::from_u8(0), None);
    }
}
