//! A call as its handler sees it.

use steadfast_engine::CallHandle;

/// The request that a handler is working on, as the connection layer knows it.
///
/// Handlers find it in the `extensions` of their context.
#[derive(Clone, Debug)]
pub struct Call(CallHandle);

impl Call {
    pub(crate) fn new(handle: CallHandle) -> Self {
        Self(handle)
    }

    /// Ends the HTTP response that waits for this call, if there is one, and goes on working: the client comes back for the
    /// answer after the time that [`Builder::retry`](crate::Builder::retry) sets. For calls that take long, so that they
    /// hold no connection meanwhile.
    ///
    /// `false` if the client could not come back, in which case nothing happens: its revision is older than 2025-11-25, or it
    /// is answered with plain JSON.
    pub fn close_connection(&self) -> bool {
        self.0.send_reader_away()
    }
}
