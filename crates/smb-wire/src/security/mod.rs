//! Security descriptors: a file's owner and access rights ([MS-DTYP] 2.4), as bytes and as text
//! (SDDL).
//!
//! Descriptors are small and outlive messages, so all types here own their data. Unknown parts are
//! kept: a descriptor read from one server and written to another loses nothing but its layout
//! (SIDs and lists may have any order in the bytes; [`SecurityDescriptor::encode`] writes owner,
//! group, SACL and DACL in this order). Nothing here decides whether access is allowed.

mod acl;
mod descriptor;
mod sddl;
mod sid;
#[cfg(test)]
mod tests;
mod text;

use super::create::AccessMask;
pub use acl::{Ace, AceFlags, AceKind, Acl};
pub use descriptor::{ControlFlags, SecurityDescriptor};
pub use sddl::{SddlError, SddlErrorKind};
pub use sid::{Sid, SidTextError};
