//! A call that may take a while: awaited on any runtime, or waited for on this thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// Something that takes a while: `.await` it, or `.wait()` for it on this thread. What a session is asked has begun by then;
/// brokers are asked when it is first polled. Dropped, it waits for nothing more, and what it asked of others may happen still.
#[must_use = "nothing is waited for unless it is awaited or .wait() is called"]
pub struct Call<'a, T>(Pin<Box<dyn Future<Output = T> + Send + 'a>>);

impl<'a, T> Call<'a, T> {
    pub(crate) fn new(steps: impl Future<Output = T> + Send + 'a) -> Call<'a, T> {
        Call(Box::pin(steps))
    }

    /// Blocks until it is done.
    pub fn wait(self) -> T {
        block_on(self.0)
    }
}

impl<T> Future for Call<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut cx) {
            return done;
        }
        // The session's thread tells of deadlines, as long as it runs.
        thread::park_timeout(LOOK_AGAIN);
    }
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// How often a blocked thread looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
