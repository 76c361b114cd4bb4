//! Random buffers with an internal format: extended attributes, security descriptors, links.

use ropeway_smb_wire::info::{FileFullEaInformation, FullEa, Information};

use crate::chance::Random;
use crate::values::{bytes, one_of};

/// Returns extended attributes, a security descriptor, or random bytes.
pub(crate) fn blob(random: &mut Random) -> Vec<u8> {
    match random.below(3) {
        0 => {
            let mut attribute = |name: &[u8]| {
                let length = random.below(60);
                FullEa {
                    need_ea: false,
                    name: name.to_vec(),
                    value: bytes(random, length),
                }
            };
            let attributes = vec![attribute(b"ONE"), attribute(b"TWO")];
            FileFullEaInformation { attributes }.to_bytes()
        }
        1 => descriptor(random),
        _ => {
            let length = random.below(100);
            bytes(random, length)
        }
    }
}

/// Returns a security descriptor with some entries ([MS-DTYP] 2.4.6).
pub(crate) fn descriptor(random: &mut Random) -> Vec<u8> {
    const SIDS: [&str; 6] = ["WD", "BA", "CO", "CG", "S-1-22-1-1000", "S-1-5-21-1-2-3-500"];
    let mut text = String::from("O:BAG:BAD:");
    if random.percent(30) {
        text.push('P');
    }
    for _ in 0..random.below(6) {
        let kind = one_of(random, &["A", "D"]);
        let flags = one_of(random, &["", "OICI", "ID", "OICIIO", "NP"]);
        let rights = one_of(random, &["FA", "FR", "FW", "0x1301bf", "GA"]);
        text.push_str(&format!("({kind};{flags};{rights};;;{})", one_of(random, &SIDS)));
    }
    let descriptor = ropeway_smb_wire::security::SecurityDescriptor::from_sddl(&text);
    descriptor
        .map(|descriptor| descriptor.to_bytes())
        .unwrap_or_default()
}

/// Returns a symbolic link ([MS-FSCC] 2.1.2.4), mostly to a target outside the share.
pub(crate) fn reparse(random: &mut Random) -> Vec<u8> {
    let targets = [
        "file",
        "..\\outside\\canary",
        "\\??\\C:\\x",
        "/etc/passwd",
        "folder\\inner",
    ];
    let target: Vec<u8> = one_of(random, &targets)
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let length = target.len() as u16;
    let mut data = Vec::new();
    for field in [0, length, length, length] {
        data.extend_from_slice(&field.to_le_bytes());
    }
    data.extend_from_slice(&1_u32.to_le_bytes());
    data.extend_from_slice(&target);
    data.extend_from_slice(&target);
    let mut out = 0xA000_000C_u32.to_le_bytes().to_vec();
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    out.extend_from_slice(&data);
    out
}
