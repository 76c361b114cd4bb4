//! A tree connect, which is made again on each connection.

use std::sync::Arc;

use ropeway_smb_client::{Error, LostReason, NtStatus, Result, Text};
use ropeway_smb1::client::{Negotiated, Reply, Request, TransactionReply};
use ropeway_smb1::code_page::UnmappableError;
use ropeway_smb1::dos_error::is_error;
use ropeway_smb1::wire::close::encode_empty;
use ropeway_smb1::wire::negotiate::Capabilities;
use ropeway_smb1::wire::tree_connect::{SERVICE_ANY, SERVICE_IPC, TreeConnectRequest, TreeFlags};
use ropeway_smb1::{AndX, Command, Header, Str};

use crate::channel::{Answer, Channel};
use crate::link::Link;

/// Attempts of a request that may run twice. A guess: a machine that crashes with each is not asked
/// for ever.
const ATTEMPTS: usize = 8;

/// Bytes of header and words in front of the data of a read or write, at most.
const OVERHEAD: u32 = 80;

/// A share. Clones are the same share.
#[derive(Clone)]
pub struct Share {
    pub(crate) inner: Arc<ShareInner>,
}

pub(crate) struct ShareInner {
    pub(crate) link: Arc<Link>,
    name: String,
    service: &'static [u8],
    /// The tree of the connection with this number.
    tree: tokio::sync::Mutex<Option<(u64, u16)>>,
}

/// A connection with the share's tree on it.
pub(crate) struct Connected {
    pub(crate) channel: Arc<Channel>,
    pub(crate) tid: u16,
    share: Arc<ShareInner>,
}

impl Share {
    /// Any kind of share.
    pub(crate) const ANY: &'static [u8] = SERVICE_ANY;
    /// Named pipes.
    pub(crate) const IPC: &'static [u8] = SERVICE_IPC;

    pub(crate) async fn connect(link: &Arc<Link>, name: &str, service: &'static [u8]) -> Result<Self> {
        let share = Self {
            inner: Arc::new(ShareInner {
                link: Arc::clone(link),
                name: name.to_owned(),
                service,
                tree: tokio::sync::Mutex::new(None),
            }),
        };
        share.connected().await?;
        Ok(share)
    }

    /// Returns `server/share`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.inner.link.endpoint, self.inner.name)
    }

    /// Returns the connection and the tree on it, made again where necessary.
    pub(crate) async fn connected(&self) -> Result<Connected> {
        for _ in 0..ATTEMPTS {
            let channel = self.inner.link.channel().await?;
            let mut tree = self.inner.tree.lock().await;
            let tid = match *tree {
                Some((generation, tid)) if generation == channel.generation => tid,
                _ => match self.tree_connect(&channel).await {
                    Ok(Some(tid)) => {
                        *tree = Some((channel.generation, tid));
                        tid
                    }
                    Ok(None) => continue,
                    Err(error) => return Err(error),
                },
            };
            return Ok(Connected {
                channel,
                tid,
                share: Arc::clone(&self.inner),
            });
        }
        Err(Error::Lost(LostReason::NotBack))
    }

    /// Connects to the tree; `None` if the connection was lost.
    async fn tree_connect(&self, channel: &Channel) -> Result<Option<u16>> {
        let unicode = channel.negotiated.unicode;
        let path = format!("\\\\{}\\{}", self.inner.link.endpoint.unc_host(), self.inner.name);
        let page = self.inner.link.options.code_page;
        let path = Str::encode(&Text::from(path.as_str()), unicode, page).map_err(unmappable)?;
        let request = TreeConnectRequest {
            andx: AndX::NONE,
            flags: TreeFlags::empty(),
            password: channel.share_password.clone(),
            path,
            service: self.inner.service.to_vec(),
        };
        let request = Request::new(Command::TREE_CONNECT_ANDX, Header::NONE, |w| request.encode(w));
        match channel.exchange(request).await {
            Answer::Replied(reply) => {
                checked("connect to the share", reply).map(|reply| Some(reply.header.tid))
            }
            Answer::Lost { .. } => Ok(None),
            Answer::TooLong => Err(Error::Misuse("the share's name is too long")),
        }
    }

    /// Sends a request and returns its reply, whatever its status. A request that may not run twice
    /// (`once`) fails if it was sent and the connection was lost.
    pub(crate) async fn call(
        &self,
        once: bool,
        make: impl Fn(&Connected) -> Result<Request>,
    ) -> Result<Box<Reply>> {
        for _ in 0..ATTEMPTS {
            let connected = self.connected().await?;
            match connected.channel.exchange(make(&connected)?).await {
                Answer::Replied(reply) => {
                    // The server has forgotten the tree or the session: begin anew.
                    if connected.is_forgotten(&reply) {
                        connected.forget().await;
                        continue;
                    }
                    return Ok(reply);
                }
                Answer::Lost { sent: true } if once => return Err(Error::Lost(LostReason::OutcomeUnknown)),
                Answer::Lost { .. } => {}
                Answer::TooLong => return Err(Error::Misuse("a request is longer than the server receives")),
            }
        }
        Err(Error::Lost(LostReason::NotBack))
    }

    /// Disconnects without waiting.
    pub(crate) fn disconnect(&self) {
        let Ok(tree) = self.inner.tree.try_lock() else {
            return;
        };
        if let Some((generation, tid)) = *tree {
            let link = Arc::clone(&self.inner.link);
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    if let Ok(channel) = link.channel().await
                        && channel.generation == generation
                    {
                        channel.post(Request::new(Command::TREE_DISCONNECT, tid, encode_empty));
                    }
                });
            }
        }
    }
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share({})", self.name())
    }
}

impl Connected {
    pub(crate) fn negotiated(&self) -> &Negotiated {
        &self.channel.negotiated
    }

    /// Encodes text for the server.
    pub(crate) fn string(&self, text: &Text) -> Result<Str> {
        let page = self.share.link.options.code_page;
        Str::encode(text, self.negotiated().unicode, page).map_err(unmappable)
    }

    /// Encodes a path in the share, with the backslash in front that old servers expect.
    pub(crate) fn path(&self, path: &Text) -> Result<Str> {
        let mut units = vec![u16::from(b'\\')];
        units.extend_from_slice(path.units());
        self.string(&Text::from_units(units))
    }

    /// Decodes a string of the server.
    pub(crate) fn text(&self, string: &Str) -> Text {
        string.text(self.share.link.options.code_page)
    }

    /// Bytes of the largest read.
    pub(crate) fn read_max(&self) -> u32 {
        let (options, negotiated) = (&self.share.link.options, self.negotiated());
        match negotiated.capabilities.contains(Capabilities::LARGE_READX) {
            true => options.read_size,
            // The response must fit the buffer that this client announced, and old servers take
            // their own as a limit.
            false => options
                .read_size
                .min(negotiated.max_buffer_size.min(65_535) - OVERHEAD),
        }
    }

    /// Bytes of the largest write.
    pub(crate) fn write_max(&self) -> u32 {
        let (options, negotiated) = (&self.share.link.options, self.negotiated());
        match negotiated.capabilities.contains(Capabilities::LARGE_WRITEX) {
            true => options.write_size,
            false => options
                .write_size
                .min(negotiated.max_buffer_size.min(65_535) - OVERHEAD),
        }
    }

    fn is_forgotten(&self, reply: &Reply) -> bool {
        use ropeway_smb1::dos_error::status;
        matches!(
            reply.header.status,
            status::BAD_TID
                | status::BAD_UID
                | NtStatus::NETWORK_NAME_DELETED
                | NtStatus::USER_SESSION_DELETED
                | NtStatus::NETWORK_SESSION_EXPIRED
        )
    }

    /// Drops the connection, so that the next request logs in and connects again.
    async fn forget(&self) {
        *self.share.tree.lock().await = None;
        self.channel.shut_down();
        self.channel.closed().await;
    }
}

/// Returns a reply if its status is a success.
pub(crate) fn checked(op: &'static str, reply: Box<Reply>) -> Result<Box<Reply>> {
    match reply.header.status {
        status if is_error(status) => Err(Error::PeerRefused { op, status }),
        _ => Ok(reply),
    }
}

/// Returns what a transaction returned, if its status is a success or says that there is more.
pub(crate) fn checked_transaction(op: &'static str, reply: Reply) -> Result<TransactionReply> {
    match reply.header.status {
        NtStatus::BUFFER_OVERFLOW => {}
        status if is_error(status) => return Err(Error::PeerRefused { op, status }),
        _ => {}
    }
    reply
        .transaction
        .ok_or_else(|| Error::InvalidReply("a transaction has no result".to_owned()))
}

/// Returns the error for a name that the server's code page lacks.
fn unmappable(error: UnmappableError) -> Error {
    Error::Local {
        op: "name a file",
        source: Arc::new(std::io::Error::new(std::io::ErrorKind::InvalidFilename, error)),
    }
}
