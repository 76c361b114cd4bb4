//! What the server tells: of this machine, and of what clients do.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use ropeway_smb_proto::wire::fsctl::CtlCode;
use ropeway_smb_proto::wire::fsctl::interfaces::decode_interfaces;
use ropeway_smb_proto::wire::header::Command;
use ropeway_smb_proto::wire::ioctl::IoctlResponse;
use ropeway_smb_proto::wire::{FileId, NtStatus};

use crate::raw::Raw;
use crate::samples;
use crate::serve::Serve;

#[test]
fn all_interfaces_that_are_listened_on() {
    let folder = tempfile::tempdir().unwrap();
    let serve = Serve::at("0.0.0.0:0", folder.path(), |_| {});
    let mut raw = Raw::ready((Ipv4Addr::LOCALHOST, serve.address.port()).into());
    let query = samples::control(FileId::RELATED, CtlCode::QUERY_NETWORK_INTERFACE_INFO, &[]);
    let reply = raw.call(Command::Ioctl, |w| w.bytes(&query));
    assert_eq!(reply.status(), NtStatus::SUCCESS);
    let output = IoctlResponse::decode(&mut reply.body()).unwrap().output.to_vec();
    let told = decode_interfaces(&output).unwrap();
    assert!(told.iter().all(|one| one.link_speed_bps > 0), "{told:?}");
    let told: Vec<IpAddr> = told.iter().filter_map(|one| one.address).collect();
    // The client's own way comes first; nobody else comes by the loopback.
    assert_eq!(told[0], Ipv4Addr::LOCALHOST);
    let others = &told[1..];
    assert!(
        others.iter().all(|one| one.is_ipv4() && !one.is_loopback()),
        "{told:?}"
    );
    // Nothing is sent: only the way there is looked for.
    let away = UdpSocket::bind("0.0.0.0:0").unwrap();
    if away.connect("192.0.2.99:9").is_ok() {
        let here = away.local_addr().unwrap().ip();
        assert!(told.contains(&here), "{here} of {told:?}");
    }
}
