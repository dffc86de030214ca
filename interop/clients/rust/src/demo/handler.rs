//! Responds to server requests and collects notifications, for the script "demo".

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, Implementation, LoggingMessageNotificationParam,
    ProgressNotificationParam, SamplingMessage,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData};
use serde_json::{Value, json};
use tokio::sync::Notify;

/// Keeps all notifications in order. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handler {
    received: Arc<Mutex<Received>>,
    arrived: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) progress: Vec<ProgressNotificationParam>,
    pub(crate) logs: Vec<Value>,
}

impl Handler {
    pub(crate) fn received(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn until(&self, condition: impl Fn(&Received) -> bool) {
        loop {
            let arrived = self.arrived.notified();
            if condition(&self.received()) {
                return;
            }
            arrived.await;
        }
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(Default::default());
        capabilities.sampling = Some(Default::default());
        ClientConfig::new(capabilities, Implementation::new("steadfast-interop", "1"))
    }

    async fn create_elicitation(
        &self,
        _form: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = json!({"name": "Ada", "number": 7});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let prompt = serde_json::to_value(&params.messages).unwrap_or_default();
        let received = format!("I heard: {}", prompt[0]["content"]["text"].as_str().unwrap_or_default());
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text(received), "none".to_owned()))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.received().progress.push(params);
        self.arrived.notify_waiters();
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.received().logs.push(params.data);
        self.arrived.notify_waiters();
    }
}
