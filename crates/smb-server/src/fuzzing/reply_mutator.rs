//! Hook that changes the responses of a server, for storms against our client.

use ropeway_smb_wire::SessionId;

/// A response before it is signed, and the session whose key signs it.
pub type Outgoing = (Vec<u8>, Option<SessionId>);

/// Changes the responses of a server.
pub trait ReplyMutator: Send + Sync {
    /// Returns the frames to send in place of one with these responses. Each is signed, compressed
    /// and encrypted like a normal one.
    fn mutate_replies(&self, replies: Vec<Outgoing>) -> Vec<Vec<Outgoing>>;

    /// Changes a frame that is ready to be sent, after its four bytes of length.
    fn mutate_frame(&self, frame: &mut Vec<u8>);
}
