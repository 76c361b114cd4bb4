//! How the played server opens, verifies, signs and seals.

use ropeway_smb_proto::compression::{Algorithms, compress, decompress};
use ropeway_smb_proto::crypto::{Cipher, Opener, Sealer, Sender, Signer};
use ropeway_smb_proto::secret::Key;
use ropeway_smb_wire::header::{CompoundMessages, NEXT_COMMAND_OFFSET, SIGNATURE_OFFSET};
use ropeway_smb_wire::{Reader, SessionId, frame, transform::TransformHeader};

/// The keys of a session on one connection of the server.
pub(crate) struct Channel {
    pub(crate) id: SessionId,
    pub(crate) signer: Signer,
    pub(crate) sealing: Option<(Sealer, Opener)>,
}

impl Channel {
    pub(crate) fn sealing(
        cipher: Option<Cipher>,
        ours: &Key,
        theirs: &Key,
        channel: u16,
    ) -> Option<(Sealer, Opener)> {
        cipher.map(|cipher| (Sealer::new(cipher, ours, channel), Opener::new(cipher, theirs)))
    }
}

/// Returns the messages of a frame, and whether they were sealed.
pub(crate) fn unwrap(
    channel: Option<&Channel>,
    compressed: bool,
    mut bytes: Vec<u8>,
) -> (Vec<Vec<u8>>, bool) {
    let mut sealed = false;
    if bytes.starts_with(b"\xFDSMB") {
        let (head, message) = bytes.split_first_chunk_mut::<{ TransformHeader::LEN }>().unwrap();
        let channel = channel.expect("a session seals");
        let header = TransformHeader::decode(&mut Reader::new(&head[..], "test")).unwrap();
        assert_eq!(header.session_id, channel.id);
        let (_, opener) = channel.sealing.as_ref().expect("the session has a cipher");
        opener.open(head, message).expect("the client seals rightly");
        bytes.drain(..TransformHeader::LEN);
        sealed = true;
    }
    if bytes.starts_with(b"\xFCSMB") {
        assert!(compressed, "compression was not agreed on");
        bytes = decompress(&bytes, ALGORITHMS, true, 1 << 24).unwrap();
    }
    let messages = CompoundMessages::new(&bytes)
        .map(|message| message.unwrap().to_vec())
        .collect();
    (messages, sealed)
}

pub(crate) const ALGORITHMS: Algorithms = Algorithms {
    lz4: true,
    lznt1: false,
    pattern_v1: true,
    zstd: false,
};

/// Builds a frame of messages.
pub(crate) fn wrap(
    messages: Vec<Vec<u8>>,
    signer: Option<&Signer>,
    sealing: Option<(&mut Sealer, SessionId)>,
    compressed: bool,
) -> Vec<u8> {
    let count = messages.len();
    let mut out = Vec::new();
    for (index, mut message) in messages.into_iter().enumerate() {
        if index + 1 < count {
            message.resize(message.len().next_multiple_of(8), 0);
            let next = (message.len() as u32).to_le_bytes();
            message[NEXT_COMMAND_OFFSET..][..4].copy_from_slice(&next);
        }
        if let Some(signer) = signer {
            sign(signer, &mut message);
        }
        out.extend_from_slice(&message);
    }
    if compressed && let Some(short) = compress(ALGORITHMS, true, 64, &out) {
        out = short;
    }
    if let Some((sealer, id)) = sealing {
        let header = sealer.ticket().unwrap().seal(id, &mut out);
        out.splice(..0, header);
    }
    out.splice(..0, frame::frame_header(out.len()));
    out
}

pub(crate) fn sign(signer: &Signer, message: &mut [u8]) {
    message[16] |= 8;
    message[SIGNATURE_OFFSET..64].fill(0);
    let signature = signer.sign(Sender::Server, &[message]);
    message[SIGNATURE_OFFSET..64].copy_from_slice(&signature);
}
