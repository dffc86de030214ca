//! Where the line of a stateless request leads: to its response, or to the subscriptions.

#![expect(deprecated, reason = "log messages are deprecated, and still sent to whoever asks for them")]

use std::sync::OnceLock;

use rmcp::model::{LoggingLevel, ProgressToken, RequestMetaObject, ServerNotification};
use steadfast_engine::{Change, ChangeFilter, ExchangeHandle, Refusal};

use super::{listen, outgoing};

pub(super) struct ExchangeLine {
    exchange: ExchangeHandle,
    /// Without a level the client wants no log messages.
    log_level: Option<LoggingLevel>,
    progress_token: Option<ProgressToken>,
    /// The tasks that a subscription wants to hear of.
    tasks: Vec<String>,
    /// What a subscription was told that it will hear of.
    accepted: OnceLock<ChangeFilter>,
}

impl ExchangeLine {
    pub(super) fn new(exchange: ExchangeHandle, meta: &RequestMetaObject, tasks: Vec<String>) -> Self {
        let (log_level, progress_token) = (meta.log_level(), meta.get_progress_token());
        Self { exchange, log_level, progress_token, tasks, accepted: OnceLock::new() }
    }

    /// Sends what the protocol lets this request carry. Changes belong on the streams of those who subscribed to
    /// them, so that is where they go; what the client did not ask for is dropped.
    pub(super) fn send(&self, notification: ServerNotification) -> Result<(), Refusal> {
        if self.exchange.is_subscription() {
            self.send_to_subscriber(&notification);
            return Ok(());
        }
        if let Some(change) = change(&notification) {
            self.exchange.announce(&change);
            return Ok(());
        }
        if !self.is_wanted(&notification) {
            return Ok(());
        }
        let (class, payload) = outgoing::notification(notification);
        self.exchange.notify(class, payload)
    }

    /// A handler that looks after its subscription itself: nothing but its acknowledgement and what that names.
    fn send_to_subscriber(&self, notification: &ServerNotification) {
        if let ServerNotification::SubscriptionsAcknowledgedNotification(acknowledged) = notification {
            let accepted = &acknowledged.params.notifications;
            // The first counts.
            if self.accepted.set(listen::filter(accepted, &self.tasks)).is_ok() {
                listen::acknowledge(&self.exchange, accepted, &self.tasks);
            }
        } else if let Some(change) = change(notification)
            && self.accepted.get().is_some_and(|accepted| accepted.wants(&change))
        {
            self.exchange.tell(&change);
        }
    }

    fn is_wanted(&self, notification: &ServerNotification) -> bool {
        match notification {
            ServerNotification::LoggingMessageNotification(message) => {
                self.log_level.is_some_and(|level| severity(message.params.level) >= severity(level))
            }
            ServerNotification::ProgressNotification(progress) => {
                self.progress_token.as_ref() == Some(&progress.params.progress_token)
            }
            ServerNotification::CancelledNotification(_)
            | ServerNotification::SubscriptionsAcknowledgedNotification(_) => false,
            _ => true,
        }
    }
}

/// What a notification says has changed, if it does.
pub(crate) fn change(notification: &ServerNotification) -> Option<Change> {
    match notification {
        ServerNotification::ToolListChangedNotification(_) => Some(Change::ToolsList),
        ServerNotification::PromptListChangedNotification(_) => Some(Change::PromptsList),
        ServerNotification::ResourceListChangedNotification(_) => Some(Change::ResourcesList),
        ServerNotification::ResourceUpdatedNotification(updated) => {
            Some(Change::Resource { uri: updated.params.uri.to_string() })
        }
        _ => None,
    }
}

fn severity(level: LoggingLevel) -> u8 {
    match level {
        LoggingLevel::Debug => 0,
        LoggingLevel::Info => 1,
        LoggingLevel::Notice => 2,
        LoggingLevel::Warning => 3,
        LoggingLevel::Error => 4,
        LoggingLevel::Critical => 5,
        LoggingLevel::Alert => 6,
        LoggingLevel::Emergency => 7,
    }
}
