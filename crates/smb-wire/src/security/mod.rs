//! Security descriptors: who owns a file and who may do what ([MS-DTYP] 2.4), as bytes and as text (SDDL).
//!
//! Descriptors are small and outlive messages, so everything here is owned. What is not understood is kept as it is:
//! a descriptor read from one server and written to another loses nothing but its layout (SIDs and lists may stand
//! anywhere in the bytes; [`SecurityDescriptor::encode`] puts owner, group, SACL and DACL in this order). Nothing here decides whether access
//! is allowed.

mod acl;
mod descriptor;
mod sddl;
mod sid;
#[cfg(test)]
mod tests;

use super::create::AccessMask;
pub use acl::{Ace, AceFlags, AceKind, Acl};
pub use descriptor::{ControlFlags, SecurityDescriptor};
pub use sddl::{SddlError, SddlFault};
pub use sid::{Sid, SidTextError};
