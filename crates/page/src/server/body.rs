//! The body of a reply: known as a whole, or a stream of events.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use hyper::body::{Body as HyperBody, Bytes, Frame, SizeHint};

use super::places::Connection;

/// The body of a reply.
pub struct Body(Kind);

enum Kind {
    Whole(Option<Bytes>),
    Events {
        stream: BoxStream<'static, Bytes>,
        /// The connection, once there is one.
        connection: Option<Arc<Connection>>,
    },
}

impl Body {
    /// Makes a body of known length.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(Some(bytes)))
    }

    /// Makes a body that goes on as long as the stream does.
    pub(crate) fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self(Kind::Events {
            stream: stream.boxed(),
            connection: None,
        })
    }

    /// Tells the connection about a stream, and each time that some of it is taken.
    pub(super) fn watched(self, connection: &Arc<Connection>) -> Self {
        match self.0 {
            Kind::Events { stream, .. } => {
                connection.streams();
                Self(Kind::Events {
                    stream,
                    connection: Some(Arc::clone(connection)),
                })
            }
            whole => Self(whole),
        }
    }
}

impl HyperBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match &mut self.0 {
            Kind::Whole(bytes) => bytes.take(),
            Kind::Events { stream, connection } => {
                let bytes = ready!(stream.poll_next_unpin(context));
                // hyper asks for more only when there is room in its small buffer.
                if let Some(connection) = connection {
                    connection.streams();
                }
                bytes
            }
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Kind::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Events { .. } => SizeHint::default(),
        }
    }
}
