//! [`ExchangeNotifier`]: sends the notifications of a handler that serves a stateless request, to
//! the response of the request or to subscribers.

#![expect(deprecated, reason = "log messages are deprecated, but clients that request them still get them")]

use std::sync::OnceLock;

use rmcp::model::{LoggingLevel, ProgressToken, RequestMetaObject, ServerNotification};
use steadfast_engine::{Change, ChangeFilter, ExchangeHandle, Refusal};

use super::super::outgoing;
use super::subscriptions;

pub(crate) struct ExchangeNotifier {
    exchange: ExchangeHandle,
    /// Without a level, the client gets no log messages.
    log_level: Option<LoggingLevel>,
    progress_token: Option<ProgressToken>,
    tasks: Vec<String>,
    /// The filter that was acknowledged to a subscription.
    accepted: OnceLock<ChangeFilter>,
}

impl ExchangeNotifier {
    pub(crate) fn new(exchange: ExchangeHandle, meta: &RequestMetaObject, tasks: Vec<String>) -> Self {
        let (log_level, progress_token) = (meta.log_level(), meta.get_progress_token());
        Self { exchange, log_level, progress_token, tasks, accepted: OnceLock::new() }
    }

    /// Sends a notification. A change goes to the clients that subscribed to it, because the
    /// protocol allows changes on their streams only. Progress and log messages go to the response
    /// of this request if it asked for them; otherwise they are dropped.
    pub(crate) fn send(&self, notification: ServerNotification) -> Result<(), Refusal> {
        if self.exchange.is_subscription() {
            self.send_to_subscriber(&notification);
            return Ok(());
        }
        if let Some(change) = change(&notification) {
            self.exchange.publish(&change);
            return Ok(());
        }
        if !self.is_wanted(&notification) {
            return Ok(());
        }
        let (class, payload) = outgoing::notification(notification);
        self.exchange.notify(class, payload)
    }

    /// For a handler that implements its subscription itself: sends its acknowledgement, and then
    /// the changes that the acknowledged filter matches.
    fn send_to_subscriber(&self, notification: &ServerNotification) {
        if let ServerNotification::SubscriptionsAcknowledgedNotification(acknowledged) = notification {
            let accepted = &acknowledged.params.notifications;
            // A second acknowledgement has no effect.
            if self.accepted.set(subscriptions::filter(accepted, &self.tasks)).is_ok() {
                subscriptions::acknowledge(&self.exchange, accepted, &self.tasks);
            }
        } else if let Some(change) = change(notification)
            && self.accepted.get().is_some_and(|accepted| accepted.matches(&change))
        {
            self.exchange.send_change(&change);
        }
    }

    /// Returns true if this request may carry the notification.
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

/// Returns the change that a notification announces, if it announces one.
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
