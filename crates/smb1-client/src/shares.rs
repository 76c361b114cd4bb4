//! Lists a server's shares: NetrShareEnum over the pipe `srvsvc` ([MS-SRVS] 3.1.4.8), or RAP where
//! there is no RPC ([MS-RAP] 2.5.5).

use ropeway_smb_client::{Error, NtStatus, Result, ShareInfo, ShareKind, Text};
use ropeway_smb_wire::create::{AccessMask, CreateOptions};
use ropeway_smb_wire::rpc::client::{ShareEnum, Step};
use ropeway_smb_wire::rpc::srvsvc::PIPE;
use ropeway_smb1::Str;
use ropeway_smb1::client::Request;
use ropeway_smb1::wire::negotiate::Capabilities;
use ropeway_smb1::wire::rap::{self, ShareList};
use ropeway_smb1::wire::transaction::{self, Kind, Limits, Totals};

use crate::calls::OpenHow;
use crate::client::Smb1Client;
use crate::open_file::OpenFile;
use crate::share::{Connected, Share, checked_transaction};

/// Setup word of TRANSACT_NMPIPE ([MS-CIFS] 2.2.5.6).
const TRANSACT_NMPIPE: u16 = 0x0026;

/// Bytes of one answer of a pipe. RPC fragments have at most 5,840 bytes in what the client
/// negotiates; a guess above that, below every buffer.
const ANSWER_MAX: u32 = 8 << 10;

/// Maximum number of reads for one list, which allows 32 MiB.
const READS_MAX: usize = 4096;

/// Bytes of a RAP answer: 16 bits count them.
const RAP_MAX: u16 = u16::MAX - 1024;

pub(crate) async fn list(client: &Smb1Client) -> Result<Vec<ShareInfo>> {
    let ipc = Share::connect(&client.link, "IPC$", Share::IPC).await?;
    let server = ipc.server().await?;
    let listed = match server
        .negotiated()
        .capabilities
        .contains(Capabilities::RPC_REMOTE_APIS)
    {
        true => match by_rpc(&ipc, &client.link.endpoint.unc_host()).await {
            Err(Error::PeerRefused { .. }) => by_rap(&ipc).await,
            listed => listed,
        },
        false => by_rap(&ipc).await,
    };
    ipc.disconnect();
    listed
}

async fn by_rpc(ipc: &Share, host: &str) -> Result<Vec<ShareInfo>> {
    let how = OpenHow {
        options: CreateOptions::empty(),
        ..OpenHow::existing(AccessMask::READ_DATA | AccessMask::WRITE_DATA)
    };
    let pipe = OpenFile::open(ipc, &Text::from(PIPE), how).await?;
    let listed = call(ipc, &pipe, host).await;
    pipe.close().await;
    listed
}

async fn call(ipc: &Share, pipe: &OpenFile, host: &str) -> Result<Vec<ShareInfo>> {
    let mut call = ShareEnum::new(host);
    let mut next = vec![call.start()];
    let mut reads = 0;
    loop {
        // All fragments but the last would be written; this call fits one.
        let Some(fragment) = next.pop().filter(|_| next.is_empty()) else {
            return Err(Error::InvalidReply("a call takes several fragments".to_owned()));
        };
        let (mut answer, mut is_more) = transact(ipc, pipe, &fragment).await?;
        loop {
            let step = call.handle_input(&answer);
            match step.map_err(|fault| Error::PeerMisbehaved(fault.to_string()))? {
                Step::Done(shares) => return Ok(shares),
                Step::Send(fragments) => {
                    next = fragments;
                    if !is_more {
                        break;
                    }
                }
                Step::Receive => {}
            }
            reads += 1;
            if reads > READS_MAX {
                return Err(Error::PeerMisbehaved("its list of shares has no end".to_owned()));
            }
            let read = pipe.read(0, ANSWER_MAX).await?;
            answer = match &read {
                Some(data) => data.bytes()?.to_vec(),
                None => Vec::new(),
            };
            is_more = false;
            if answer.is_empty() {
                return Err(Error::PeerMisbehaved(
                    "its list of shares is truncated".to_owned(),
                ));
            }
        }
    }
}

/// Writes a fragment to a pipe and reads the answer, in one round trip. Returns whether there is
/// more to read.
async fn transact(ipc: &Share, pipe: &OpenFile, fragment: &[u8]) -> Result<(Vec<u8>, bool)> {
    let fid = pipe.created.fid;
    let reply = ipc
        .call(true, |at| {
            let request = transaction::Request {
                setup: vec![TRANSACT_NMPIPE, fid],
                ..named(at, "\\PIPE\\", &[], fragment, 0)?
            };
            Ok(Request::transaction(at.tid, &request))
        })
        .await?;
    let is_more = reply.header.status == NtStatus::BUFFER_OVERFLOW;
    let reply = checked_transaction("call a service", *reply)?;
    Ok((reply.data, is_more))
}

fn named<'a>(
    at: &Connected,
    name: &str,
    parameters: &'a [u8],
    data: &'a [u8],
    max_parameters: u32,
) -> Result<transaction::Request<'a>> {
    Ok(transaction::Request {
        kind: Kind::Named,
        name: at.string(&Text::from(name))?,
        flags: 0,
        timeout: 0,
        function: 0,
        setup: Vec::new(),
        limits: Limits {
            parameters: max_parameters,
            data: ANSWER_MAX,
            setup: 0,
        },
        totals: Totals {
            parameters: parameters.len(),
            data: data.len(),
        },
        parameters,
        data,
    })
}

async fn by_rap(ipc: &Share) -> Result<Vec<ShareInfo>> {
    let parameters = rap::share_enum(RAP_MAX);
    let reply = ipc
        .call(false, |at| {
            let mut request = transaction::Request {
                name: Str::empty(false),
                ..named(at, rap::PIPE, &parameters, &[], 1024)?
            };
            request.name = at.string(&Text::from(rap::PIPE))?;
            request.limits.data = u32::from(RAP_MAX);
            Ok(Request::transaction(at.tid, &request))
        })
        .await?;
    let reply = checked_transaction("list the shares", *reply)?;
    let list = ShareList::decode(&reply.parameters, &reply.data)?;
    if list.error != rap::SUCCESS && list.error != rap::MORE_DATA {
        return Err(Error::InvalidReply(format!(
            "the list of shares fails with error {} of Windows",
            list.error
        )));
    }
    let page = ipc.inner.link.options.code_page;
    let shares = list.shares.iter().map(|share| ShareInfo {
        name: page.decode(&share.name),
        kind: kind(share.kind, &share.name),
        remark: page.decode(&share.remark),
    });
    Ok(shares.collect())
}

/// Returns the kind as srvsvc has it.
fn kind(kind: u16, name: &[u8]) -> ShareKind {
    let special = match name.last() {
        Some(b'$') => ShareKind::SPECIAL,
        _ => 0,
    };
    ShareKind(u32::from(kind) | special)
}
