//! Whether an SMB server answers: a connection and a small NEGOTIATE, written by hand so that
//! nothing of the product is needed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Time for one attempt.
const TRY_MAX: Duration = Duration::from_secs(2);

/// Makes one attempt. Any answer in SMB 2 counts, also a refusal of the dialects.
pub(crate) fn answers(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, TRY_MAX)?;
    stream.set_read_timeout(Some(TRY_MAX))?;
    stream.write_all(&request())?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    if &head[4..8] == b"\xFESMB" {
        return Ok(());
    }
    Err(std::io::Error::other("it does not answer in SMB 2"))
}

/// Returns a NEGOTIATE ([MS-SMB2] 2.2.1.2, 2.2.3) for the dialects up to 3.0.2, which need no
/// contexts, in a frame of [MS-SMB2] 2.1.
fn request() -> Vec<u8> {
    let mut message = Vec::from(*b"\xFESMB");
    message.extend(64u16.to_le_bytes()); // StructureSize
    message.resize(64, 0); // charge, status, command 0 = NEGOTIATE, credits, flags, ids, signature
    message[14] = 1; // CreditRequest
    let dialects: [u16; 4] = [0x0202, 0x0210, 0x0300, 0x0302];
    message.extend(36u16.to_le_bytes()); // StructureSize
    message.extend((dialects.len() as u16).to_le_bytes());
    message.extend(1u16.to_le_bytes()); // SecurityMode: signing enabled
    message.resize(64 + 12, 0); // Reserved, Capabilities (unit 8 to 12)
    message.extend([0x5A; 16]); // ClientGuid
    message.extend([0; 8]); // ClientStartTime
    for dialect in dialects {
        message.extend(dialect.to_le_bytes());
    }
    let mut frame = (message.len() as u32).to_be_bytes().to_vec();
    frame.extend(message);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_has_its_size() {
        assert_eq!(request().len(), 4 + 64 + 36 + 8);
    }
}
