//! Responds to server requests and collects notifications, for the script "eras".

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams,
    ElicitResult, ElicitationAction, Implementation, ListRootsResult, LoggingMessageNotificationParam,
    ProgressNotificationParam, ResourceUpdatedNotificationParam, Root, SamplingMessage,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};
use rmcp::{ClientHandler, ErrorData};
use serde_json::{Value, json};

/// Responds to every request and keeps every notification in order. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handler(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) declines: bool,
    pub(crate) forms: Vec<String>,
    pub(crate) logs: Vec<Value>,
    pub(crate) progress: Vec<(f64, Option<f64>)>,
    pub(crate) tool_changes: usize,
    pub(crate) resources: Vec<String>,
    /// Sampling requests in progress, and the highest number of them at once.
    pub(crate) running: usize,
    pub(crate) peak: usize,
}

impl Handler {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(Default::default());
        capabilities.roots = Some(Default::default());
        capabilities.sampling = Some(Default::default());
        ClientConfig::new(capabilities, Implementation::new("steadfast-interop", "1"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let request = serde_json::to_value(request).unwrap_or_default();
        let mut seen = self.seen();
        seen.forms.push(request["message"].as_str().unwrap_or_default().to_owned());
        if seen.declines {
            return Ok(ElicitResult::new(ElicitationAction::Decline));
        }
        let fields = request["requestedSchema"]["properties"].as_object().cloned().unwrap_or_default();
        let content: serde_json::Map<_, _> =
            fields.keys().map(|field| (field.clone(), json!(format!("my {field}")))).collect();
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content.into()))
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let prompt = serde_json::to_value(&params.messages).unwrap_or_default();
        let prompt = prompt[0]["content"]["text"].as_str().unwrap_or_default().to_owned();
        {
            let mut seen = self.seen();
            seen.running += 1;
            seen.peak = seen.peak.max(seen.running);
        }
        if prompt.starts_with("Question") {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        self.seen().running -= 1;
        let message = SamplingMessage::assistant_text(format!("answer to {prompt}"));
        Ok(CreateMessageResult::new(message, "none".to_owned()))
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new("file:///here")]))
    }

    async fn on_progress(&self, step: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.seen().progress.push((step.progress, step.total));
    }

    async fn on_logging_message(
        &self,
        message: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.seen().logs.push(message.data);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.seen().tool_changes += 1;
    }

    async fn on_resource_updated(
        &self,
        update: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.seen().resources.push(update.uri);
    }
}
