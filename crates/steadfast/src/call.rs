//! [`Call`]: the handle through which a handler controls the HTTP connection of its call.

use steadfast_engine::CallHandle;

/// The call that a handler is working on. A handler gets it from the `extensions` of its context.
#[derive(Clone, Debug)]
pub struct Call(CallHandle);

impl Call {
    pub(crate) fn new(handle: CallHandle) -> Self {
        Self(handle)
    }

    /// Closes the HTTP response that is waiting for this call, if there is one. The call continues,
    /// and the client resumes the stream after the time that
    /// [`Builder::retry`](crate::Builder::retry) sets. A long call does not occupy a connection
    /// meanwhile.
    ///
    /// Returns `false`, and does nothing, if the client cannot resume: its revision is older than
    /// 2025-11-25, or it waits for a plain JSON response.
    pub fn close_connection(&self) -> bool {
        self.0.disconnect_reader()
    }
}
