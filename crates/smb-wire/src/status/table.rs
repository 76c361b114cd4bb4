//! The table behind [`NtStatus`]: number, name, what happened, what to do; numbers and names from [MS-ERREF] 2.3.1.
//!
//! Sentences are clauses that follow a path or a server's name and a colon. A hint stands where something helps.

use super::NtStatus;

/// What is known of one status.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) sentence: &'static str,
    pub(super) hint: Option<&'static str>,
}

macro_rules! statuses {
    ($($code:literal $name:ident $sentence:literal $($hint:literal)?;)*) => {
        impl NtStatus {
            $(
                #[doc = concat!("`STATUS_", stringify!($name), "`: ", $sentence, ".")]
                pub const $name: Self = Self($code);
            )*
        }

        /// Every status of the table.
        #[cfg(test)]
        pub(super) const ALL: &[NtStatus] = &[$(NtStatus::$name),*];

        /// Looks a status up; one arm each, so a number that stands twice does not compile.
        #[deny(unreachable_patterns)]
        #[allow(clippy::too_many_lines, reason = "a table")]
        pub(super) fn entry(code: u32) -> Option<Entry> {
            let (name, sentence, hint) = match code {
                $($code => (concat!("STATUS_", stringify!($name)), $sentence, [$($hint,)? ""][0]),)*
                _ => return None,
            };
            let hint = (!hint.is_empty()).then_some(hint);
            Some(Entry { name, sentence, hint })
        }
    };
}

statuses! {
    0x0000_0000 SUCCESS "done";
    0x0000_0103 PENDING "the server is still working on it";
    0x0000_0104 REPARSE "the name leads elsewhere";
    0x0000_0105 MORE_ENTRIES "there are more entries";
    0x0000_0107 SOME_NOT_MAPPED "some of the accounts are unknown to the server";
    0x0000_0108 OPLOCK_BREAK_IN_PROGRESS "another client is giving up its cached copy";
    0x0000_010B NOTIFY_CLEANUP "the watched folder was closed";
    0x0000_010C NOTIFY_ENUM_DIR "more changed than the server could list"
        "read the folder again";
    0x8000_0005 BUFFER_OVERFLOW "there is more than fits into one answer";
    0x8000_0006 NO_MORE_FILES "there are no more files";
    0x8000_000D PARTIAL_COPY "only a part was copied";
    0x8000_000E DEVICE_PAPER_EMPTY "the printer is out of paper";
    0x8000_0010 DEVICE_OFF_LINE "the device is off line";
    0x8000_0011 DEVICE_BUSY "the device is busy";
    0x8000_0012 NO_MORE_EAS "there are no more extended attributes";
    0x8000_0013 INVALID_EA_NAME "the name of an extended attribute is not valid";
    0x8000_0014 EA_LIST_INCONSISTENT "the list of extended attributes is malformed";
    0x8000_0015 INVALID_EA_FLAG "a flag of an extended attribute is not valid";
    0x8000_0016 VERIFY_REQUIRED "the medium has to be checked first";
    0x8000_001A NO_MORE_ENTRIES "there are no more entries";
    0x8000_001C MEDIA_CHANGED "the medium was changed";
    0x8000_002D STOPPED_ON_SYMLINK "the path crosses a symbolic link that the client must follow";
    0xC000_0001 UNSUCCESSFUL "the server failed without giving a reason"
        "see the server's log";
    0xC000_0002 NOT_IMPLEMENTED "the server does not know this operation";
    0xC000_0003 INVALID_INFO_CLASS "the server does not know this kind of information";
    0xC000_0004 INFO_LENGTH_MISMATCH "the server expects information of another length";
    0xC000_0005 ACCESS_VIOLATION "the server stumbled over an invalid address";
    0xC000_0006 IN_PAGE_ERROR "the server could not read its disk"
        "check the server's disk";
    0xC000_0008 INVALID_HANDLE "the server does not know this handle";
    0xC000_000D INVALID_PARAMETER "the server considers the request invalid";
    0xC000_000E NO_SUCH_DEVICE "there is no such device on the server";
    0xC000_000F NO_SUCH_FILE "there is no such file";
    0xC000_0010 INVALID_DEVICE_REQUEST "the file system of the share does not support this operation";
    0xC000_0011 END_OF_FILE "the file ends here";
    0xC000_0012 WRONG_VOLUME "the wrong volume is in the drive";
    0xC000_0013 NO_MEDIA_IN_DEVICE "there is no medium in the drive";
    0xC000_0014 UNRECOGNIZED_MEDIA "the server does not recognise the medium";
    0xC000_0015 NONEXISTENT_SECTOR "the server's disk has no such sector";
    0xC000_0016 MORE_PROCESSING_REQUIRED "the login takes another round";
    0xC000_0017 NO_MEMORY "the server is out of memory"
        "try again later, or with fewer operations at once";
    0xC000_001F INVALID_VIEW_SIZE "the range lies beyond the end of the file";
    0xC000_0022 ACCESS_DENIED "the server denies access"
        "check the share's permissions for this user, and those of the file";
    0xC000_0023 BUFFER_TOO_SMALL "the answer does not fit the space offered for it";
    0xC000_0024 OBJECT_TYPE_MISMATCH "the object is of another kind";
    0xC000_0032 DISK_CORRUPT_ERROR "the server's file system is damaged"
        "have the server's disk checked and repaired";
    0xC000_0033 OBJECT_NAME_INVALID "the name is not valid on the server"
        "the server's file system may forbid a character, a trailing dot or space, or a name such as CON";
    0xC000_0034 OBJECT_NAME_NOT_FOUND "there is no file of that name";
    0xC000_0035 OBJECT_NAME_COLLISION "the name is already taken";
    0xC000_0037 PORT_DISCONNECTED "the server closed the port";
    0xC000_0039 OBJECT_PATH_INVALID "the path is not valid on the server";
    0xC000_003A OBJECT_PATH_NOT_FOUND "a folder of the path does not exist";
    0xC000_003B OBJECT_PATH_SYNTAX_BAD "the path is malformed";
    0xC000_003C DATA_OVERRUN "more data came than was asked for";
    0xC000_003E DATA_ERROR "the server could not read its disk without errors"
        "check the server's disk";
    0xC000_003F CRC_ERROR "data on the server's disk does not match its checksum"
        "check the server's disk";
    0xC000_0043 SHARING_VIOLATION "another program has the file open and does not share it"
        "close the file elsewhere, or try again later";
    0xC000_0044 QUOTA_EXCEEDED "the user's quota is used up"
        "free space, or have the quota raised";
    0xC000_004F EAS_NOT_SUPPORTED "the share does not support extended attributes";
    0xC000_0050 EA_TOO_LARGE "the extended attributes are too large for the server";
    0xC000_0051 NONEXISTENT_EA_ENTRY "there is no such extended attribute";
    0xC000_0052 NO_EAS_ON_FILE "the file has no extended attributes";
    0xC000_0053 EA_CORRUPT_ERROR "the file's extended attributes are damaged";
    0xC000_0054 FILE_LOCK_CONFLICT "another program has locked this part of the file"
        "close the file elsewhere, or try again later";
    0xC000_0055 LOCK_NOT_GRANTED "the server does not grant the lock now"
        "close the file elsewhere, or try again later";
    0xC000_0056 DELETE_PENDING "the file is being deleted"
        "it disappears once every program has closed it";
    0xC000_0057 CTL_FILE_NOT_SUPPORTED "the operation is not supported on this kind of file";
    0xC000_0058 UNKNOWN_REVISION "the server does not know this version of the structure";
    0xC000_0059 REVISION_MISMATCH "two versions of a structure do not go together";
    0xC000_005A INVALID_OWNER "this account may not be made the owner";
    0xC000_005B INVALID_PRIMARY_GROUP "this group may not be made the primary group";
    0xC000_005E NO_LOGON_SERVERS "the server reaches no domain controller to check the password"
        "check the server's connection to its domain, or use an account of the server itself";
    0xC000_005F NO_SUCH_LOGON_SESSION "the login session no longer exists";
    0xC000_0061 PRIVILEGE_NOT_HELD "the user lacks a privilege for this"
        "changing owners or audit rules takes an administrator or backup operator";
    0xC000_0064 NO_SUCH_USER "the server does not know this user"
        "check the user's name and domain";
    0xC000_006A WRONG_PASSWORD "the password is wrong"
        "check user, domain and password";
    0xC000_006B ILL_FORMED_PASSWORD "the password has characters that are not allowed"
        "change the password on the server";
    0xC000_006C PASSWORD_RESTRICTION "the password does not meet the server's rules";
    0xC000_006D LOGON_FAILURE "the server does not accept this user and password"
        "check user, domain and password; the server may also refuse this way of logging in";
    0xC000_006E ACCOUNT_RESTRICTION "a rule keeps this account from logging in"
        "an empty password is often not allowed over the network";
    0xC000_006F INVALID_LOGON_HOURS "this account may not log in at this time"
        "try again within its hours, or have them extended";
    0xC000_0070 INVALID_WORKSTATION "this account may not log in from this computer"
        "have this computer added to the account's workstations";
    0xC000_0071 PASSWORD_EXPIRED "the password has expired"
        "change the password, then try again";
    0xC000_0072 ACCOUNT_DISABLED "the account is disabled"
        "have the account enabled";
    0xC000_0073 NONE_MAPPED "the server knows none of the accounts";
    0xC000_0077 INVALID_ACL "the access control list is not valid";
    0xC000_0078 INVALID_SID "the account's identifier is not valid";
    0xC000_0079 INVALID_SECURITY_DESCR "the security descriptor is not valid";
    0xC000_007A PROCEDURE_NOT_FOUND "the server does not have this procedure";
    0xC000_007E RANGE_NOT_LOCKED "this part of the file is not locked";
    0xC000_007F DISK_FULL "the server's disk is full"
        "free space on the server";
    0xC000_009A INSUFFICIENT_RESOURCES "the server has no resources left for this"
        "try again later, or with fewer operations at once";
    0xC000_009B DFS_EXIT_PATH_FOUND "the path leaves this DFS share";
    0xC000_009D DEVICE_NOT_CONNECTED "the server's disk is not connected";
    0xC000_00A2 MEDIA_WRITE_PROTECTED "the server's disk is write-protected"
        "whoever runs the server can allow writing";
    0xC000_00A3 DEVICE_NOT_READY "the server's disk is not ready"
        "try again later";
    0xC000_00A5 BAD_IMPERSONATION_LEVEL "the server may not act for the user as far as needed";
    0xC000_00AB INSTANCE_NOT_AVAILABLE "all instances of the pipe are in use"
        "try again later";
    0xC000_00AC PIPE_NOT_AVAILABLE "the pipe cannot be used now"
        "try again later";
    0xC000_00AD INVALID_PIPE_STATE "the pipe is not in a state for this";
    0xC000_00AE PIPE_BUSY "the pipe is busy"
        "try again later";
    0xC000_00B0 PIPE_DISCONNECTED "the pipe is not connected";
    0xC000_00B1 PIPE_CLOSING "the other end is closing the pipe";
    0xC000_00B5 IO_TIMEOUT "the server waited too long for its disk or for another server"
        "try again later";
    0xC000_00B6 FILE_FORCED_CLOSED "the server closed the file by force"
        "open it again";
    0xC000_00BA FILE_IS_A_DIRECTORY "it is a folder, not a file";
    0xC000_00BB NOT_SUPPORTED "the server does not support this";
    0xC000_00BC REMOTE_NOT_LISTENING "the server does not listen";
    0xC000_00BD DUPLICATE_NAME "the name exists twice on the network";
    0xC000_00BE BAD_NETWORK_PATH "the server cannot be found"
        "check the server's name and the network";
    0xC000_00BF NETWORK_BUSY "the network is busy"
        "try again later";
    0xC000_00C0 DEVICE_DOES_NOT_EXIST "the share's device no longer exists";
    0xC000_00C1 TOO_MANY_COMMANDS "the server takes no more requests at once"
        "try again with fewer operations at once";
    0xC000_00C3 INVALID_NETWORK_RESPONSE "another server's answer made no sense";
    0xC000_00C4 UNEXPECTED_NETWORK_ERROR "the network failed in an unexpected way"
        "try again";
    0xC000_00C6 PRINT_QUEUE_FULL "the print queue is full";
    0xC000_00C7 NO_SPOOL_SPACE "the server has no space to hold the print job";
    0xC000_00C8 PRINT_CANCELLED "the print job was cancelled";
    0xC000_00C9 NETWORK_NAME_DELETED "the share was removed, or the server closed the connection to it"
        "connect again; check that the share still exists";
    0xC000_00CA NETWORK_ACCESS_DENIED "the server denies access over the network"
        "check the share's permissions for this user";
    0xC000_00CB BAD_DEVICE_TYPE "the share is of another kind";
    0xC000_00CC BAD_NETWORK_NAME "there is no share of that name on the server"
        "check the share's name";
    0xC000_00CE TOO_MANY_SESSIONS "the server takes no more sessions"
        "try again later, or close other connections to the server";
    0xC000_00CF SHARING_PAUSED "the server has paused sharing"
        "try again later";
    0xC000_00D0 REQUEST_NOT_ACCEPTED "the server takes no more connections to this share"
        "try again later; the share may be limited to a number of users";
    0xC000_00D1 REDIRECTOR_PAUSED "the network client is paused";
    0xC000_00D2 NET_WRITE_FAULT "the server could not write to the network";
    0xC000_00D4 NOT_SAME_DEVICE "source and target are on different volumes";
    0xC000_00D5 FILE_RENAMED "the file was renamed";
    0xC000_00D6 VIRTUAL_CIRCUIT_CLOSED "the connection to the server was closed"
        "connect again";
    0xC000_00D8 CANT_WAIT "the operation would have to wait";
    0xC000_00D9 PIPE_EMPTY "there is nothing in the pipe";
    0xC000_00DF NO_SUCH_DOMAIN "the server does not know this domain"
        "check the domain";
    0xC000_00E2 OPLOCK_NOT_GRANTED "the server does not let the client cache the file";
    0xC000_00E3 INVALID_OPLOCK_PROTOCOL "the answer to a lost cache right is not valid";
    0xC000_00E4 INTERNAL_DB_CORRUPTION "the server's account database is damaged";
    0xC000_00E5 INTERNAL_ERROR "the server failed inside"
        "see the server's log";
    0xC000_00E6 GENERIC_NOT_MAPPED "the access rights asked for have no meaning here";
    0xC000_00E9 UNEXPECTED_IO_ERROR "the server's disk failed in an unexpected way"
        "check the server's disk";
    0xC000_0101 DIRECTORY_NOT_EMPTY "the folder is not empty";
    0xC000_0102 FILE_CORRUPT_ERROR "the file is damaged on the server's disk"
        "have the server's disk checked and repaired";
    0xC000_0103 NOT_A_DIRECTORY "it is not a folder";
    0xC000_0106 NAME_TOO_LONG "the name is too long for the server";
    0xC000_0107 FILES_OPEN "files are still open";
    0xC000_0108 CONNECTION_IN_USE "the connection is still in use";
    0xC000_011F TOO_MANY_OPENED_FILES "too many files are open on the server"
        "try again with fewer operations at once";
    0xC000_0120 CANCELLED "the request was cancelled";
    0xC000_0121 CANNOT_DELETE "the file cannot be deleted"
        "it may be read-only, or mapped by a program on the server";
    0xC000_0123 FILE_DELETED "the file was deleted meanwhile";
    0xC000_0128 FILE_CLOSED "the file was closed meanwhile";
    0xC000_0133 TIME_DIFFERENCE_AT_DC "the clocks of this computer and the server differ too much"
        "set the clock";
    0xC000_0148 INVALID_LEVEL "the server does not know this level of information";
    0xC000_014B PIPE_BROKEN "the other end closed the pipe";
    0xC000_015B LOGON_TYPE_NOT_GRANTED "this account may not log in over the network"
        "the server's policy decides who may log in over the network";
    0xC000_0161 ILLEGAL_CHARACTER "the name holds a character that the server does not take";
    0xC000_0184 INVALID_DEVICE_STATE "the device is not in a state for this";
    0xC000_0185 IO_DEVICE_ERROR "the server's disk failed"
        "check the server's disk";
    0xC000_018C TRUSTED_DOMAIN_FAILURE "the domains do not trust each other";
    0xC000_018D TRUSTED_RELATIONSHIP_FAILURE "the server's trust to its domain is broken"
        "the server has to join its domain again";
    0xC000_0192 NETLOGON_NOT_STARTED "the server's login service is not running";
    0xC000_0193 ACCOUNT_EXPIRED "the account has expired"
        "have the account extended";
    0xC000_0195 NETWORK_CREDENTIAL_CONFLICT "the server is already in use as another user";
    0xC000_0196 REMOTE_SESSION_LIMIT "the server takes no more sessions"
        "try again later, or close other connections to the server";
    0xC000_0199 NOLOGON_WORKSTATION_TRUST_ACCOUNT "a computer's account may not log in here";
    0xC000_01A1 INVALID_LOCK_RANGE "the range to lock is not valid";
    0xC000_0203 USER_SESSION_DELETED "the server ended the session"
        "log in again";
    0xC000_0205 INSUFF_SERVER_RESOURCES "the server has no resources left for this"
        "try again later, or with fewer operations at once";
    0xC000_0206 INVALID_BUFFER_SIZE "the server takes no buffer of this size";
    0xC000_020C CONNECTION_DISCONNECTED "the connection was closed"
        "connect again";
    0xC000_020D CONNECTION_RESET "the connection was reset"
        "connect again";
    0xC000_0224 PASSWORD_MUST_CHANGE "the password has to be changed before the first login"
        "change the password, then try again";
    0xC000_0225 NOT_FOUND "the server does not find it";
    0xC000_022A DUPLICATE_OBJECTID "another file has the same object identifier";
    0xC000_022D RETRY "the server asks to try again"
        "try again";
    0xC000_0233 DOMAIN_CONTROLLER_NOT_FOUND "the server finds no domain controller"
        "check the server's connection to its domain";
    0xC000_0234 ACCOUNT_LOCKED_OUT "the account is locked after too many failed logins"
        "wait, or have the account unlocked";
    0xC000_0236 CONNECTION_REFUSED "the connection was refused"
        "check that the server shares files on this address";
    0xC000_023A CONNECTION_INVALID "the connection no longer exists";
    0xC000_023C NETWORK_UNREACHABLE "the network cannot be reached";
    0xC000_023D HOST_UNREACHABLE "the server cannot be reached";
    0xC000_0241 CONNECTION_ABORTED "the connection was given up"
        "connect again";
    0xC000_0243 USER_MAPPED_FILE "a program on the server has the file mapped"
        "close the file on the server";
    0xC000_0257 PATH_NOT_COVERED "the path lies on another server of this DFS namespace";
    0xC000_0265 TOO_MANY_LINKS "the file has as many names as the server allows";
    0xC000_026D DFS_UNAVAILABLE "the server's DFS namespace is not available";
    0xC000_026E VOLUME_DISMOUNTED "the server's volume was unmounted";
    0xC000_0275 NOT_A_REPARSE_POINT "it is not a link or other reparse point";
    0xC000_0276 IO_REPARSE_TAG_INVALID "the link's tag is not valid";
    0xC000_0277 IO_REPARSE_TAG_MISMATCH "the link is of another kind";
    0xC000_0278 IO_REPARSE_DATA_INVALID "the link's content is not valid";
    0xC000_0279 IO_REPARSE_TAG_NOT_HANDLED "the server cannot follow this kind of link";
    0xC000_0280 REPARSE_POINT_NOT_RESOLVED "the link cannot be followed";
    0xC000_0281 DIRECTORY_IS_A_REPARSE_POINT "the folder is a link";
    0xC000_028A ENCRYPTION_FAILED "the server could not encrypt the file on its disk";
    0xC000_0293 FILE_ENCRYPTED "the file is encrypted on the server's disk";
    0xC000_02F0 OBJECTID_NOT_FOUND "the file has no object identifier";
    0xC000_035C NETWORK_SESSION_EXPIRED "the session has expired"
        "log in again";
    0xC000_0388 DOWNGRADE_DETECTED "somebody may have weakened the connection"
        "do not trust this network";
    0xC000_0413 AUTHENTICATION_FIREWALL_FAILED "this account may not log in to this server"
        "the server's domain lets only selected accounts log in";
    0xC000_0418 NTLM_BLOCKED "the server does not accept NTLM logins"
        "the server takes Kerberos only: get a ticket (`kinit`), and log in by it";
    0xC000_0427 FILE_SYSTEM_LIMITATION "the server's file system cannot do this"
        "the file may be too large or too fragmented for it";
    0xC000_042A REQUEST_OUT_OF_SEQUENCE "a later request of the same file came first";
    0xC000_0463 DEVICE_FEATURE_NOT_SUPPORTED "the server's disk does not support this";
    0xC000_0466 SERVER_UNAVAILABLE "the server is not available now"
        "try again later";
    0xC000_0467 FILE_NOT_AVAILABLE "the file is not available now"
        "try again later; it may lie in slow storage or on a cluster that is moving it";
    0xC000_0470 DATA_CHECKSUM_ERROR "data on the server's disk does not match its checksum"
        "check the server's disk";
    0xC000_0480 SHARE_UNAVAILABLE "the share is not available now"
        "try again later";
    0xC000_0802 DISK_QUOTA_EXCEEDED "the user's quota is used up"
        "free space, or have the quota raised";
    0xC000_0904 FILE_TOO_LARGE "the file is too large for the server's file system";
    0xC000_0906 VIRUS_INFECTED "the server found a virus in the file";
    0xC000_0907 VIRUS_DELETED "the server found a virus in the file and deleted it";
    0xC000_A000 INVALID_SIGNATURE "the signature is wrong: the data was changed on its way, or the keys differ"
        "do not trust this network";
    0xC000_A001 HMAC_NOT_SUPPORTED "the server does not support this checksum";
    0xC000_A100 HASH_NOT_SUPPORTED "the server keeps no hashes for this file";
    0xC000_A101 HASH_NOT_PRESENT "the server has no hashes for this part of the file";
    0xC000_A2A1 OFFLOAD_READ_FLT_NOT_SUPPORTED "the server cannot offload reading";
    0xC000_A2A2 OFFLOAD_WRITE_FLT_NOT_SUPPORTED "the server cannot offload writing";
    0xC000_A2A3 OFFLOAD_READ_FILE_NOT_SUPPORTED "reading this file cannot be offloaded";
    0xC000_A2A4 OFFLOAD_WRITE_FILE_NOT_SUPPORTED "writing this file cannot be offloaded";
    0xC05D_0000 SMB_NO_PREAUTH_INTEGRITY_HASH_OVERLAP "client and server have no hash function in common";
    0xC05D_0001 SMB_BAD_CLUSTER_DIALECT "the cluster does not speak this dialect of SMB";
}
