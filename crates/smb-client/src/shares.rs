//! A server's shares: NetrShareEnum on the pipe `srvsvc` of IPC$ ([MS-SRVS] 3.1.4.8).

use ropeway_block::Pool;
use ropeway_smb_wire::NtStatus;
use ropeway_smb_wire::create::{AccessMask, CreateDisposition, CreateOptions};
use ropeway_smb_wire::fsctl::CtlCode;
use ropeway_smb_wire::rpc::client::{ShareEnum, Step};
use ropeway_smb_wire::rpc::srvsvc::{PIPE, ShareInfo};

use crate::{Client, Error, Handle, OpenFile, Result, Text};

/// Bytes of one answer. A fragment of RPC has 5,840 at most in what we agree to ([MS-RPCE] 2.2.2.6); a guess above.
const ANSWER_MAX: u32 = 16 << 10;
/// Reads of one list. 64 MiB of shares are enough for anybody.
const READS_MAX: usize = 4096;

pub(crate) async fn list(client: &Client) -> Result<Vec<ShareInfo>> {
    let ipc = client.share("IPC$").await?;
    let open = OpenFile {
        access: AccessMask::READ_DATA | AccessMask::WRITE_DATA,
        disposition: CreateDisposition::Open,
        options: CreateOptions::default(),
        durable: false,
        query_on_disk_id: false,
        ..OpenFile::read()
    };
    let pipe = ipc.open_here(&Text::from(PIPE), &open).await?;
    let mut call = ShareEnum::new(&client.endpoint().unc_host());
    let pool = Pool::new(ANSWER_MAX as usize, 1);
    let mut fragments = vec![call.start()];
    let mut reads = 0;
    loop {
        let mut answer = Vec::new();
        // All but the last are written; the last is written and answered in one round trip.
        let last = fragments.pop();
        for fragment in fragments.drain(..) {
            write(&pipe, &pool, &fragment).await?;
        }
        let mut is_more = last.is_none();
        if let Some(last) = last {
            let code = CtlCode::PIPE_TRANSCEIVE;
            let (status, output) = pipe.ioctl_with_status(code, &last, ANSWER_MAX).await?;
            is_more = status == NtStatus::BUFFER_OVERFLOW;
            answer = output;
        }
        loop {
            if !answer.is_empty() {
                let step = call.handle_input(&answer);
                match step.map_err(|fault| Error::PeerMisbehaved(fault.to_string()))? {
                    Step::Done(shares) => {
                        // The answer is here; the server's word on the pipe's end is of no use.
                        drop(pipe);
                        return Ok(shares);
                    }
                    Step::Send(next) => {
                        fragments = next;
                        if !is_more {
                            break;
                        }
                    }
                    Step::Receive => {}
                }
            }
            reads += 1;
            if reads > READS_MAX {
                return Err(Error::PeerMisbehaved("its list of shares has no end".to_owned()));
            }
            let (block, outcome) = pipe.read_at(0, pool.get().await, ANSWER_MAX as usize).await;
            outcome?;
            is_more = false;
            answer = block.to_vec();
            if answer.is_empty() {
                return Err(Error::PeerMisbehaved(
                    "its list of shares ends too soon".to_owned(),
                ));
            }
        }
    }
}

async fn write(pipe: &Handle, pool: &Pool, fragment: &[u8]) -> Result<()> {
    let mut block = pool.get().await;
    let Some(room) = block.capacity_mut().get_mut(..fragment.len()) else {
        return Err(Error::Misuse("a fragment of RPC is longer than agreed"));
    };
    room.copy_from_slice(fragment);
    block.set_len(fragment.len());
    pipe.write_at(0, block.freeze()).await
}
