//! Catches panics of the backend and of the engine's own periodic tasks.

use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use steadfast_wire::Reason;
use steadfast_wire::rpc::ErrorObject;

/// Runs `work` and turns a panic into a JSON-RPC error. The panic is logged.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, ErrorObject> {
    catch_panic_text(work).await.map_err(|panic| {
        tracing::error!(%panic, "the backend panicked");
        Reason::HandlerPanicked.error("The server's handler failed while it worked on this request.")
    })
}

/// Runs `work` and returns the text of its panic, if it panics.
pub(crate) async fn catch_panic_text<T>(work: impl Future<Output = T>) -> Result<T, String> {
    struct Guarded<F>(F);
    impl<F: Future + Unpin> Future for Guarded<F> {
        type Output = Result<F::Output, String>;
        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
            // After a panic the future is dropped and never polled again, so its broken state is
            // not observed.
            let poll = std::panic::catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.0).poll(context)));
            match poll {
                Ok(poll) => poll.map(Ok),
                Err(panic) => Poll::Ready(Err(panic_text(&*panic))),
            }
        }
    }
    Guarded(pin!(work)).await
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no message)").to_owned()
}
