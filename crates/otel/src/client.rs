//! Plain HTTP for the exporters. They call it on threads of their own, so it may wait.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};

/// Most bytes of an answer that are read: collectors answer with some dozen.
const ANSWER_MAX: u64 = 64 << 10;

/// A client with a time-out.
#[derive(Clone, Debug)]
pub(crate) struct Client(ureq::Agent);

impl Client {
    pub(crate) fn new(timeout: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .build();
        Self(config.into())
    }
}

#[async_trait::async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (parts, body) = request.into_parts();
        let response = self.0.run(Request::from_parts(parts, body.to_vec()))?;
        let (parts, mut body) = response.into_parts();
        let answer = body.with_config().limit(ANSWER_MAX).read_to_vec()?;
        Ok(Response::from_parts(parts, Bytes::from(answer)))
    }
}
