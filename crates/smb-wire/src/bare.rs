//! Messages without content: LOGOFF, TREE_DISCONNECT, ECHO, the request CANCEL, the responses to
//! FLUSH and LOCK.

use super::cursor::{Reader, Result, Writer};
use super::lengths::named;

macro_rules! bare {
    ($($(#[$doc:meta])* $name:ident $specified:literal;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name;

            impl $name {
                /// Reads the body.
                ///
                /// # Errors
                /// A wrong `StructureSize`, truncation.
                pub fn decode(reader: &mut Reader<'_>) -> Result<Self> {
                    let mut reader = named(reader, $specified);
                    reader.structure_size(4)?;
                    reader.skip(2)?;
                    Ok(Self)
                }

                /// Appends the body.
                pub fn encode(&self, w: &mut Writer<'_>) {
                    w.u16(4);
                    w.u16(0);
                }
            }
        )*
    };
}

bare! {
    /// Ends a session ([MS-SMB2] 2.2.7).
    LogoffRequest "SMB2 LOGOFF Request";
    /// The session has ended ([MS-SMB2] 2.2.8).
    LogoffResponse "SMB2 LOGOFF Response";
    /// Disconnects from a share ([MS-SMB2] 2.2.11).
    TreeDisconnectRequest "SMB2 TREE_DISCONNECT Request";
    /// The tree connection has ended ([MS-SMB2] 2.2.12).
    TreeDisconnectResponse "SMB2 TREE_DISCONNECT Response";
    /// Asks whether the server is alive ([MS-SMB2] 2.2.28).
    EchoRequest "SMB2 ECHO Request";
    /// The server is alive ([MS-SMB2] 2.2.29).
    EchoResponse "SMB2 ECHO Response";
    /// Cancels the request with the same message id, or asynchronous id, in the header
    /// ([MS-SMB2] 2.2.30). CANCEL has no response; if it was in time, the request's response says
    /// STATUS_CANCELLED.
    CancelRequest "SMB2 CANCEL Request";
    /// Everything written to an open is in stable storage ([MS-SMB2] 2.2.18).
    FlushResponse "SMB2 FLUSH Response";
    /// The ranges are locked or unlocked ([MS-SMB2] 2.2.27).
    LockResponse "SMB2 LOCK Response";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile;
    use crate::{Fault, header::HEADER_LEN};

    #[test]
    fn four_bytes() {
        let bytes = hostile::message(|w| EchoRequest.encode(w));
        assert_eq!(bytes[HEADER_LEN..], [4, 0, 0, 0]);
        assert_eq!(EchoRequest::decode(&mut hostile::body(&bytes)), Ok(EchoRequest));
        assert_eq!(
            CancelRequest::decode(&mut hostile::body(&bytes)),
            Ok(CancelRequest)
        );
        let fault = LogoffResponse::decode(&mut hostile::body(&bytes[..66])).unwrap_err();
        assert_eq!(
            (fault.structure, fault.fault),
            ("SMB2 LOGOFF Response", Fault::Truncated)
        );
        hostile::attack_body(&bytes, |reader| {
            let _ = TreeDisconnectRequest::decode(reader);
        });
    }
}
