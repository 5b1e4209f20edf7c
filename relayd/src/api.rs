//! What is served over HTTP.
//!
//! ```text
//! POST /v1        a request's bytes ─▶ 200, the response's bytes: refusals of the directory, too
//!                 408 the body takes too long   413 it is over 8 MiB   503 busy, or the storage failed: try again
//! GET  /healthz   200 or 503
//! GET  /metrics   figures, at an address of their own
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody as _};
use axum::extract::{Extension, Request, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Router, body};
use bytes::Bytes;
use futures::StreamExt as _;

use crate::budget::{Budget, Share};
use crate::limits;
use crate::metrics::{Metrics, TurnedAway};
use crate::writer::{Answer, Requests};

/// What handlers share.
struct Api {
    requests: Requests,
    bytes: Budget,
    metrics: Arc<Metrics>,
}

/// The directory.
pub fn directory(requests: Requests, metrics: Arc<Metrics>) -> Router {
    let api = Api { requests, bytes: Budget::new(limits::REQUESTS_BYTES_MAX), metrics };
    Router::new().route("/v1", post(ask)).route("/healthz", get(health)).with_state(Arc::new(api))
}

/// The figures.
pub fn figures(metrics: Arc<Metrics>) -> Router {
    let page = |State(metrics): State<Arc<Metrics>>| async move {
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        ([(CONTENT_TYPE, kind)], metrics.text())
    };
    Router::new().route("/metrics", get(page)).with_state(metrics)
}

async fn health(State(api): State<Arc<Api>>) -> (StatusCode, &'static str) {
    match api.requests.is_well() {
        true => (StatusCode::OK, "ok\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the disk is slow\n"),
    }
}

async fn ask(
    State(api): State<Arc<Api>>,
    Extension(clock): Extension<Arc<RequestClock>>,
    request: Request,
) -> Response {
    let timed = Timed::start(clock);
    let read = tokio::time::timeout(limits::BODY_TIMEOUT, read(&api.bytes, request.into_body()));
    let (request, share) = match read.await.unwrap_or(Err(Unread::Slow)) {
        Ok(read) => read,
        Err(why) => return api.turn_away(why),
    };
    timed.read();
    let Some(answer) = api.requests.send(request, share) else { return api.turn_away(Unread::Busy) };
    match answer.await {
        Ok(Answer::Response(response, share)) => {
            let body = Bytes::from_owner(Outgoing { response, _share: share, _timed: timed });
            ([(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))], Body::from(body)).into_response()
        }
        Ok(Answer::Busy) => api.turn_away(Unread::Busy),
        // The program is about to end, and says why.
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the storage failed\n").into_response(),
    }
}

/// Why a request does not reach the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    TooLarge,
    Slow,
    Ended,
    Busy,
}

/// Reads a body. A client that sends too much gets to hear it: what it sends is dropped, up to twice the limit.
async fn read(bytes: &Budget, body: Body) -> Result<(Vec<u8>, Share), Unread> {
    let drained_max = 2 * REQUEST_BYTES_MAX;
    if body.size_hint().lower() > drained_max as u64 {
        return Err(Unread::TooLarge);
    }
    let (mut request, mut share, mut length, mut why) = (Vec::new(), bytes.share(), 0_usize, None);
    let mut parts: body::BodyDataStream = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|_| Unread::Ended)?;
        let free = limits::REQUEST_BYTES_FREE.saturating_sub(length).min(part.len());
        length += part.len();
        if length > REQUEST_BYTES_MAX {
            why = Some(Unread::TooLarge);
        } else if why.is_none() && !share.grow(part.len() - free) {
            why = Some(Unread::Busy);
        }
        if length > drained_max {
            break;
        }
        if why.is_some() {
            (request, share) = (Vec::new(), bytes.share());
        } else {
            request.extend_from_slice(&part);
        }
    }
    why.map_or(Ok((request, share)), Err)
}

impl Api {
    fn turn_away(&self, why: Unread) -> Response {
        let (status, counted, text) = match why {
            Unread::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, TurnedAway::TooLarge, "the request is over 8 MiB\n"),
            Unread::Slow => (StatusCode::REQUEST_TIMEOUT, TurnedAway::Body, "the request took too long\n"),
            Unread::Ended => (StatusCode::BAD_REQUEST, TurnedAway::Body, "the request is incomplete\n"),
            Unread::Busy => (StatusCode::SERVICE_UNAVAILABLE, TurnedAway::Busy, "busy: try again\n"),
        };
        self.metrics.turned_away(counted);
        let mut headers = HeaderMap::<HeaderValue>::new();
        if why == Unread::Busy {
            let again: (HeaderName, _) = (RETRY_AFTER, HeaderValue::from_static("1"));
            headers.insert(again.0, again.1);
        }
        (status, headers, text).into_response()
    }
}

/// A response on its way: what it takes is free, and its time is over, when the connection has sent it.
struct Outgoing {
    response: Vec<u8>,
    _share: Share,
    _timed: Timed,
}

impl AsRef<[u8]> for Outgoing {
    fn as_ref(&self) -> &[u8] {
        &self.response
    }
}

/// Since when a connection has been busy with a request.
pub struct RequestClock {
    start: Instant,
    /// Milliseconds after `start`, and 1; 0 if there is no request.
    begun: AtomicU64,
    /// Since when the client has sent no whole request, in the same way; 0 while one is answered.
    waits: AtomicU64,
}

/// A request under way on a connection, which has one at a time.
pub(crate) struct Timed(Arc<RequestClock>);

impl RequestClock {
    /// There is no request yet.
    pub fn new() -> RequestClock {
        RequestClock { start: Instant::now(), begun: AtomicU64::new(0), waits: AtomicU64::new(1) }
    }

    /// How long the client has sent no whole request; `None` while one is answered.
    pub fn waits(&self) -> Option<Duration> {
        let since = self.waits.load(Ordering::Acquire).checked_sub(1)?;
        Some(self.start.elapsed().saturating_sub(Duration::from_millis(since)))
    }

    /// Whether a request takes too long.
    pub fn is_over(&self) -> bool {
        let (begun, now) = (self.begun.load(Ordering::Acquire), self.start.elapsed().as_millis() as u64);
        begun > 0 && now.saturating_sub(begun) > limits::REQUEST_TIMEOUT.as_millis() as u64
    }
}

impl Default for RequestClock {
    fn default() -> RequestClock {
        RequestClock::new()
    }
}

impl Timed {
    pub(crate) fn start(clock: Arc<RequestClock>) -> Timed {
        clock.begun.store(clock.start.elapsed().as_millis() as u64 + 1, Ordering::Release);
        Timed(clock)
    }

    /// The request is here.
    pub(crate) fn read(&self) {
        self.0.waits.store(0, Ordering::Release);
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.0.begun.store(0, Ordering::Release);
        self.0.waits.store(self.0.start.elapsed().as_millis() as u64 + 1, Ordering::Release);
    }
}

use sealcast_wire::limits::RELAY_REQUEST_BYTES_MAX as REQUEST_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    fn read_now(bytes: &Budget, parts: Vec<usize>) -> Result<usize, Unread> {
        let parts = parts.into_iter().map(|n| Ok::<_, std::io::Error>(Bytes::from(vec![7; n])));
        let body = Body::from_stream(futures::stream::iter(parts));
        futures::executor::block_on(read(bytes, body)).map(|(request, _)| request.len())
    }

    #[test]
    fn rule_g7_many_long_requests_keep_no_small_one_out() {
        let bytes = Budget::new(1 << 20);
        assert_eq!(read_now(&bytes, vec![1 << 20, 60 << 10]), Ok((1 << 20) + (60 << 10)));
        assert_eq!(read_now(&bytes, vec![1 << 20, 1 << 20]), Err(Unread::Busy));
        let _all = bytes.take(1 << 20);
        assert_eq!(read_now(&bytes, vec![1000, 60_000]), Ok(61_000));
        assert_eq!(read_now(&bytes, vec![60_000, 60_000, 10]), Err(Unread::Busy));
        assert_eq!(read_now(&Budget::new(1 << 30), vec![REQUEST_BYTES_MAX, 1]), Err(Unread::TooLarge));
        assert_eq!(read_now(&Budget::new(1 << 30), vec![REQUEST_BYTES_MAX; 9]), Err(Unread::TooLarge));
        assert_eq!(read_now(&Budget::new(1 << 30), vec![REQUEST_BYTES_MAX]), Ok(REQUEST_BYTES_MAX));
    }
}
