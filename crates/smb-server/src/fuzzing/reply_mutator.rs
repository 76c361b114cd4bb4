//! Hook that changes the responses of a server, for storms against our client.

use ropeway_smb_wire::SessionId;

/// A reply on its way out, and the session whose key signs it.
pub type Outgoing = (Vec<u8>, Option<SessionId>);

/// Changes what a server says.
pub trait ReplyMutator: Send + Sync {
    /// The frames that are sent in place of one with these replies; each is signed, compressed and sealed as a true one.
    fn mutate_replies(&self, replies: Vec<Outgoing>) -> Vec<Vec<Outgoing>>;

    /// Changes a frame that is ready to be sent, behind its four bytes of length.
    fn mutate_frame(&self, frame: &mut Vec<u8>);
}
