//! What the server says besides its answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ClientHandler;
use rmcp::model::{LoggingMessageNotificationParam, ProgressNotificationParam};
use rmcp::service::{NotificationContext, RoleClient};
use serde_json::Value;
use tokio::sync::Notify;

/// Keeps everything, in order. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listener {
    heard: Arc<Mutex<Heard>>,
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) progress: Vec<ProgressNotificationParam>,
    pub(crate) logs: Vec<Value>,
}

impl Listener {
    pub(crate) fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn until(&self, condition: impl Fn(&Heard) -> bool) {
        loop {
            let news = self.news.notified();
            if condition(&self.heard()) {
                return;
            }
            news.await;
        }
    }
}

impl ClientHandler for Listener {
    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.heard().progress.push(params);
        self.news.notify_waiters();
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.heard().logs.push(params.data);
        self.news.notify_waiters();
    }
}
